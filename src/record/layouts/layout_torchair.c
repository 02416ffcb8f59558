/* layout_torchair.c - files as torchair's data_dump leaves them, one a tensor of a node's call:
 * worldsize<W>_global_rank<R>/graph_<n>/<step>/<node>.INPUT.<argument>.<stamp>.npy */
#include "record/layouts/naming.h"
#include "record/layouts/layout_files.h"

#include "base/clock.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* UTC %Y%m%d%H%M%S%f */
static void format_stamp(char *text, size_t cap, int64_t stamp_us)
{
    uint64_t us = stamp_us > 0 ? (uint64_t)stamp_us : tap__wall_ns() / 1000u;
    time_t seconds = (time_t)(us / 1000000u);
    struct tm now;
    char date[32];
    if (!gmtime_r(&seconds, &now))
        memset(&now, 0, sizeof now);
    strftime(date, sizeof date, "%Y%m%d%H%M%S", &now);
    snprintf(text, cap, "%s%06u", date, (unsigned)(us % 1000000u));
}

tap_status tap__torchair_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err)
{
    (void)err;
    if (!tap__leaf_has_file(namer, leaf, true))
        return TAP_OK;
    const tap_layout_options *options = &namer->options;
    const tap_save_info *info = leaf->info;
    char process[48], suffix[64], stamp[48];
    tap__process_part(options, false, process, sizeof process);
    tap__strbuf_printf(out, "worldsize%d_global_rank%d%s/graph_%lld/%lld/", options->world_size, options->rank, process,
                       (long long)info->graph_id, (long long)leaf->step);
    format_stamp(stamp, sizeof stamp, info->stamp_us);
    snprintf(suffix, sizeof suffix, ".%s.npy", stamp);
    const char *middle = leaf->kind == TAP_KIND_INPUT ? ".INPUT" : ".OUTPUT";
    const char *node = info->node ? info->node : leaf->name;
    if (info->argument || !leaf->path_len) {
        /* as a path of one key */
        tap__strbuf_char(&namer->scratch, 'k');
        tap__strbuf_str(&namer->scratch, info->argument ? info->argument : "0");
        if (namer->scratch.failed)
            return TAP_OK;
        tap__component(out, "", node, strlen(node), middle, namer->scratch.text, namer->scratch.len, suffix);
    } else {
        tap__component(out, "", node, strlen(node), middle, leaf->path, leaf->path_len, suffix);
    }
    return TAP_OK;
}

/* 20 digits of UTC time to nanoseconds since 1970; false: no such time. */
static bool parse_stamp(const char *text, const char *end, uint64_t *ns)
{
    if (end - text != 20)
        return false;
    int field[6];
    const char *at = text;
    for (int i = 0; i < 6; i++) {
        uint64_t number;
        const char *stop = at + (i ? 2 : 4);
        if (!tap__parse_number(at, stop, "", &number))
            return false;
        field[i] = (int)number;
        at = stop;
    }
    uint64_t us;
    if (!tap__parse_number(at, end, "", &us))
        return false;
    struct tm when = {.tm_year = field[0] - 1900, .tm_mon = field[1] - 1, .tm_mday = field[2], .tm_hour = field[3],
                      .tm_min = field[4], .tm_sec = field[5]};
    time_t seconds = timegm(&when);
    if (seconds < 0 || seconds > 9000000000)
        return false;
    *ns = ((uint64_t)seconds * 1000000u + us) * 1000u;
    return true;
}

/* The first ".INPUT." or ".OUTPUT." in [file, end), and the kind it says: names have none, see tap__name_escape. */
static const char *find_kind(const char *file, const char *end, tap_kind *kind, const char **argument)
{
    for (const char *at = file; at < end; at++) {
        if (*at != '.')
            continue;
        if (end - at >= 7 && memcmp(at, ".INPUT.", 7) == 0) {
            *kind = TAP_KIND_INPUT;
            *argument = at + 7;
            return at;
        }
        if (end - at >= 8 && memcmp(at, ".OUTPUT.", 8) == 0) {
            *kind = TAP_KIND_OUTPUT;
            *argument = at + 8;
            return at;
        }
    }
    return NULL;
}

/* "worldsize<W>_global_rank<R>[_child<pid>]" */
static bool parse_world(const char *text, const char *end, tap_found *found)
{
    static const char RANK[] = "_global_rank";
    uint64_t number;
    const char *at = text;
    while (at < end && strncmp(at, RANK, sizeof RANK - 1) != 0)
        at++;
    if (at >= end || !tap__parse_number(text, at, "worldsize", &number))
        return false;
    tap__strip_process(at + sizeof RANK - 1, &end, found);
    if (!tap__parse_number(at, end, RANK, &number))
        return false;
    found->rank = (int32_t)(number & INT32_MAX);
    return true;
}

static bool parse(const char *whole, const char *relative, tap_found *found)
{
    (void)relative;
    const char *end = whole + strlen(whole), *up = end;
    const char *file = tap__last_component(whole, &up);
    const char *step_end = up, *step = tap__last_component(whole, &up);
    const char *graph_end = up, *graph = tap__last_component(whole, &up);
    const char *world_end = up, *world = tap__last_component(whole, &up);
    uint64_t number, id;
    if (!world || !tap__parse_number(step, step_end, "", &number) ||
        !tap__parse_number(graph, graph_end, "graph_", &id) || !parse_world(world, world_end, found) ||
        !tap__strip(file, &end, ".npy"))
        return false;
    const char *stamp = end, *argument = NULL;
    while (stamp > file && stamp[-1] != '.')
        stamp--;
    if (stamp == file || !parse_stamp(stamp, end, &found->time_ns))
        return false;
    const char *kind_at = find_kind(file, stamp - 1, &found->kind, &argument);
    if (!kind_at)
        return false;
    found->step = (int64_t)number;
    found->node = true;
    snprintf(found->graph, sizeof found->graph, "graph_%llu", (unsigned long long)id);
    tap__name_unescape(&found->name, file, (size_t)(kind_at - file));
    tap__name_unescape(&found->path, argument, (size_t)(stamp - 1 - argument));
    found->order[0] = found->time_ns;
    found->order[1] = found->kind == TAP_KIND_OUTPUT;
    return true;
}

bool tap__torchair_detect(tap_dir *dir, const char *only)
{
    return tap__tree_detect(dir, only, 5, parse);
}

tap_status tap__torchair_read(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err)
{
    return tap__tree_read(dir, only, 5, parse, add, user, err);
}
