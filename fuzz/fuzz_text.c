/* fuzz_text.c - the small languages that people write (tolerances, precisions, ranges of steps, globs), JSON as values in
 * memory, and the page of counts that outlives a program. The first byte says which one the rest is. */
#include "base/json_read.h"
#include "base/match.h"
#include "compare/tolerance.h"
#include "file_oracle.h"
#include "record/ring/tally.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

static void rules(const char *text)
{
    tap_rules found;
    tap_error err = {.status = TAP_OK};
    if (tap__rules_parse(&found, &text, 1, &err) == TAP_OK) {
        ORACLE(found.count == 1 && (found.items[0].rel >= 0 || found.items[0].abs >= 0));
        const tap_rule *rule = tap__rules_find(&found, "layers.0.attn");
        ORACLE(!rule || tap__rule_allows(rule, 0, 1));
    } else {
        ORACLE(err.message[0]);
    }
    tap__rules_free(&found);
    double roundoff;
    ORACLE(tap__precision_parse(text, &roundoff, &err) != TAP_OK || roundoff > 0);
}

static void ranges(const char *text)
{
    tap_ranges found;
    tap_error err = {.status = TAP_OK};
    if (tap__ranges_parse(&found, text, "step", &err) != TAP_OK) {
        ORACLE(err.message[0]);
        return;
    }
    for (size_t i = 0; i < found.count; i++)
        ORACLE(found.items[i].first <= found.items[i].last && tap__ranges_contain(&found, found.items[i].first));
    tap__ranges_free(&found);
}

static uint64_t walk(const tap_json_value *value)
{
    int64_t number;
    uint64_t sum = value->type, whole;
    if (value->type == TAP_JSON_TEXT || value->key)
        sum += value->type == TAP_JSON_TEXT ? strlen(value->text) + value->len : strlen(value->key);
    sum += tap__json_int64(value, &number) + tap__json_uint64(value, &whole);
    size_t count = 0;
    for (const tap_json_value *item = value->items; item; item = item->next, count++) {
        sum += walk(item);
        ORACLE(value->type != TAP_JSON_DICT || tap__json_get(value, item->key, NULL));
    }
    ORACLE(count == value->count);
    return sum;
}

/* What is stepped over ends where what is read ends. */
static void json(const char *text, size_t len)
{
    tap_json_reader reader, other;
    tap_arena arena;
    const char *at;
    size_t skipped;
    tap__json_read_begin(&reader, text, len, 64);
    tap__json_read_begin(&other, text, len, 64);
    tap__arena_init(&arena, len);
    const tap_json_value *value = tap__json_value(&reader, &arena);
    bool well = tap__json_skip(&other, &at, &skipped);
    ORACLE((value != NULL) == well && (!value || reader.at == other.at));
    tap_error err = {.status = TAP_OK};
    if (value)
        oracle_sink = (unsigned char)walk(value);
    else
        ORACLE(tap__json_broken(&reader, "text", &err) != TAP_OK && err.message[0]);
    tap__arena_free(&arena);
}

static void tally(const uint8_t *bytes, size_t len)
{
    static tap_dir *root;
    if (!root && tap__dir_open("/", false, &root, NULL) != TAP_OK)
        abort();
    int fd = memfd_create("tally", MFD_CLOEXEC);
    uint8_t page[TAP_TALLY_BYTES] = {0};
    uint64_t magic = TAP_TALLY_MAGIC;
    memcpy(page, &magic, sizeof magic);
    for (; len >= 3; bytes += 3, len -= 3) /* u16 place, u8 what */
        page[(bytes[0] | bytes[1] << 8) % TAP_TALLY_BYTES] = bytes[2];
    ORACLE(fd >= 0 && write(fd, page, sizeof page) == (ssize_t)sizeof page);
    tap_tally *found = tap__tally_map(fd);
    if (found) {
        ORACLE(tap__tally_finished(found, root) <= 1);
        oracle_sink = (unsigned char)(tap__tally_missing(found, 1) + tap__tally_marked(found).seq);
        tap__tally_account(found, 1, 2);
        ORACLE(tap__tally_marked(found).accounted == 2 || atomic_load(&found->mark_valid) > 1);
        tap__tally_unmap(found);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    if (len == 0)
        return 0;
    char *text = malloc(len);
    if (!text)
        return 0;
    memcpy(text, bytes + 1, len - 1);
    text[len - 1] = 0;
    switch (bytes[0] & 7) {
    case 0: rules(text); break;
    case 1: ranges(text); break;
    case 2: oracle_sink = tap__names_match(text, "layers.0.attn"); break;
    case 3: tally(bytes + 1, len - 1); break;
    default: json(text, len - 1);
    }
    free(text);
    return 0;
}
