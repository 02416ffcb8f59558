/* fuzz_printfile.c - MindSpore print files and the tensors printed as text inside. */
#include "file_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    oracle_file(bytes, len, &tap__format_print);
    return 0;
}
