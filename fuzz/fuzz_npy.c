/* fuzz_npy.c - npy files; what is accepted is written again and must be read back the same. */
#include "file_oracle.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void round_trip(const tap_tensor *tensor)
{
    static char path[64];
    if (!path[0])
        snprintf(path, sizeof path, "/dev/shm/tap-fuzz-npy-%ld", (long)getpid());
    tap_error err;
    tap_file *file;
    tap_file_entry entry;
    tap_file_entry_init(&entry);
    uint64_t before, after;
    ORACLE(tap_file_write(path, "npy", tensor, NULL, 1, true, &err) == TAP_OK);
    ORACLE(tap_file_open(path, &file, &err) == TAP_OK && tap_file_get(file, 0, &entry, &err) == TAP_OK);
    ORACLE(entry.tensor.ndim == tensor->ndim);
    for (int i = 0; i < tensor->ndim; i++)
        ORACLE(entry.tensor.shape[i] == tensor->shape[i]);
    if (entry.tensor.dtype == tensor->dtype) {
        ORACLE(tap_tensor_scan(tensor, TAP_SCAN_HASH, NULL, NULL, &before, &err) == TAP_OK);
        ORACLE(tap_tensor_scan(&entry.tensor, TAP_SCAN_HASH, NULL, NULL, &after, &err) == TAP_OK);
        ORACLE(before == after);
    }
    tap_file_close(file);
    unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    oracle_file(bytes, len, &tap__format_npy);
    tap_file *file;
    tap_file_entry entry;
    tap_file_entry_init(&entry);
    if (tap__file_open_memory(bytes, len, "fuzzed", &tap__format_npy, &file, NULL) != TAP_OK)
        return 0;
    static unsigned turn; /* a file costs a hundred times what parsing does */
    if (turn++ % 16 == 0 && tap_file_get(file, 0, &entry, NULL) == TAP_OK)
        round_trip(&entry.tensor);
    tap_file_close(file);
    return 0;
}
