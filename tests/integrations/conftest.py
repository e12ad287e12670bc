"""`test_tools` needs the tools themselves, which `make test-integrations` puts beside the environment.

Where one is missing its tests are not collected, so that the main suite neither counts nor skips them.
"""

from importlib.util import find_spec

TOOLS = {"verl": "test_verl.py", "inspect_ai": "test_inspect_ai.py", "verifiers": "test_verifiers.py"}
collect_ignore = [f"tools/{file}" for tool, file in TOOLS.items() if find_spec(tool) is None]
