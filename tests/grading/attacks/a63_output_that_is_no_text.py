# bytes at which a reader might stumble
import os
os.write(1, b"6\0\n" + b"\xed\xa0\x80\xff\xfe\xc0\x80" * 1000 + b"1" * 100000 + b"e" + b"9" * 100000 + b"\r\v\f" * 1000)
