/* fuzz_segment.c - a segment file, a description and a loss journal of any bytes: opening, listing, mapping and
 * verifying never crash, hang or read beyond. The first byte of the input says which file the rest is; bit 7 puts
 * the checksums of a segment right first, so that mutations reach what lies behind them. */
#include "base/io.h"
#include "base/newfile.h"
#include "record/native/attempt.h"
#include "record/ring/journal.h"
#include "record/native/scan.h"
#include "record/native/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/dev/shm/tap-fuzz-XXXXXX";
static tap_dir *root;

static void clean_up(void)
{
    static const char *const NAMES[] = {"rank0/attempt0.json", "rank0/attempt0.lost", "rank0/attempt0-000000.tap",
                                        "rank0", "run.json", ""};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", dir, NAMES[i]);
        remove(path);
    }
}

static void put(const char *name, const void *bytes, size_t len)
{
    if (tap__file_put(root, name, bytes, len, NULL) != TAP_OK)
        abort();
}

static void start(void)
{
    static const char RUN[] = "{\"tensortap\": 1, \"layout\": \"native\"}";
    if (!mkdtemp(dir) || tap__dir_open(dir, false, &root, NULL) != TAP_OK)
        abort();
    atexit(clean_up);
    put("run.json", RUN, sizeof RUN - 1);
}

static void seal(uint8_t *bytes, size_t len)
{
    tap_segment_header header;
    if (len >= sizeof header) {
        memcpy(&header, bytes, sizeof header);
        header.header_hash = tap_hash_bytes(&header, offsetof(tap_segment_header, header_hash));
        memcpy(bytes, &header, sizeof header);
    }
    for (size_t at = TAP_PAGE; at + sizeof(tap_entry) <= len; at += TAP_ENTRY_ALIGN) {
        tap_entry entry;
        memcpy(&entry, bytes + at, sizeof entry);
        if (entry.magic != TAP_ENTRY_MAGIC || entry.meta_bytes > len - at - sizeof entry)
            continue;
        tap__entry_seal(&entry, bytes + at + sizeof entry);
        memcpy(bytes + at, &entry, sizeof entry);
    }
}

static void read_run(void)
{
    tap_run *run;
    if (tap_run_open(dir, &run, NULL) != TAP_OK)
        return;
    tap_query query;
    tap_query_init(&query);
    query.incomplete = true;
    tap_cursor *cursor;
    if (tap_run_query(run, &query, &cursor, NULL) == TAP_OK) {
        tap_record record;
        tap_record_init(&record);
        while (tap_cursor_next(cursor, &record, NULL) == TAP_OK) {
            tap_mapping mapping;
            tap_mapping_init(&mapping);
            if (tap_record_map(run, &record, &mapping, NULL) != TAP_OK)
                continue;
            int64_t bytes = tap_tensor_bytes(&mapping.tensor);
            if (bytes > 0)
                tap_hash_bytes(mapping.tensor.data, (size_t)bytes);
            tap_mapping_release(&mapping);
        }
        tap_cursor_close(cursor);
    }
    tap_verify_result result;
    tap_verify_result_init(&result);
    tap_run_verify(run, NULL, &result, NULL);
    tap_run_close(run);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char ENDED[] = "{\"tensortap\": 1, \"ended\": \"closed\", \"segments\": 1}";
    static bool started;
    if (!started)
        start();
    started = true;
    if (size == 0)
        return 0;
    uint8_t *copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data + 1, --size);
    switch (data[0] & 3) {
    case 0: {
        tap_attempt_info info;
        tap__attempt_parse((const char *)copy, size, &info, NULL);
        put("rank0/attempt0.json", copy, size);
        break;
    }
    case 1: put("rank0/attempt0.lost", copy, size < TAP_JOURNAL_BYTES ? size : TAP_JOURNAL_BYTES); break;
    default:
        if (data[0] & 128)
            seal(copy, size);
        put("rank0/attempt0.json", ENDED, sizeof ENDED - 1);
        put("rank0/attempt0-000000.tap", copy, size);
    }
    free(copy);
    read_run();
    return 0;
}
