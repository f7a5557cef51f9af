// The tag of C++ exceptions, which no library of the package defines.
__asm__(
    "\t.globl\t__cpp_exception\n"
    "\t.tagtype\t__cpp_exception i32\n"
    "__cpp_exception:\n");
