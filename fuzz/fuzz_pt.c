/* fuzz_pt.c - torch archives: zip directory, pickle and storages. */
#include "file_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    oracle_file(bytes, len, &tap__format_pt);
    return 0;
}
