"""Native symbols under other names: a file can't define a name that it reads."""

native_cc_common = cc_common
native_cc_info = CcInfo
