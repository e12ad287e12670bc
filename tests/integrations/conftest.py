"""`test_tools` needs the tools themselves, which `make test-integrations` puts beside the environment.

Where one is missing its tests are not collected, so that the main suite neither counts nor skips them.
"""

from importlib.util import find_spec

TOOLS = {
    "test_inspect_ai.py": ["inspect_ai"],
    "test_trackers.py": ["trackio", "wandb"],
    "test_verifiers.py": ["verifiers"],
    "test_verl.py": ["verl"],
}
collect_ignore = [f"tools/{file}" for file, tools in TOOLS.items() if not all(map(find_spec, tools))]
