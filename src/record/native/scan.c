/* scan.c - entries of an attempt in order. An entry counts when its header hash is right and its seq fits: what lies
 * where an entry should be and is none is stepped over in the 64-byte steps all entries lie on. */
#include "record/native/scan.h"

#include "base/io.h"
#include "base/memory.h"
#include "base/status.h"
#include "record/ring/ring.h"
#include "record/native/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    WINDOW = 256 << 10,
    META_MAX = 64 << 20, /* more than any name and shape need: the header lies */
    ENTRY_MIN = sizeof(tap_entry)
};

/* Bytes from offset on, as many of `want` as the file has; NULL when it cannot be read. */
static const uint8_t *window_at(tap_scan *scan, uint64_t offset, size_t want, size_t *got, tap_error *err)
{
    if (offset >= scan->window_offset && offset - scan->window_offset <= scan->window_bytes) {
        size_t inside = (size_t)(offset - scan->window_offset);
        if (scan->window_bytes - inside >= want) {
            *got = scan->window_bytes - inside;
            return scan->window + inside;
        }
    }
    size_t need = want > WINDOW ? want : WINDOW;
    if (need > scan->window_cap) {
        uint8_t *grown = tap__resize(scan->window, need, 1);
        if (!grown) {
            tap_fail_nomem(err);
            return NULL;
        }
        scan->window = grown;
        scan->window_cap = need;
    }
    /* after a large payload only the next header is wanted; after a small one what follows is too */
    bool near = offset <= scan->window_offset + scan->window_bytes + TAP_PAGE_ALIGN_FROM;
    size_t ask = near || want > TAP_PAGE ? need : TAP_PAGE;
    ssize_t bytes = tap__pread_all(scan->fd, scan->window, ask, (off_t)offset);
    if (bytes < 0) {
        tap_fail_errno(err, TAP_E_IO, "cannot read segment %u in %s/%s", scan->segment,
                       scan->files->root->path, scan->files->dir);
        scan->window_bytes = 0;
        return NULL;
    }
    scan->window_offset = offset;
    scan->window_bytes = (size_t)bytes;
    *got = (size_t)bytes;
    return scan->window;
}

/* Looks at the place of an entry. TAP_OK, TAP_E_TRUNCATED or TAP_E_CORRUPT as tap__entry_check says; else an error. */
static tap_status entry_at(tap_scan *scan, uint64_t offset, const tap_entry **entry, bool *cut, tap_error *err)
{
    size_t got;
    const uint8_t *bytes = window_at(scan, offset, ENTRY_MIN, &got, err);
    if (!bytes)
        return err->status;
    uint64_t avail = scan->file_bytes > offset ? scan->file_bytes - offset : 0;
    if (got < ENTRY_MIN || avail < ENTRY_MIN)
        return TAP_E_TRUNCATED;
    const tap_entry *head = (const tap_entry *)(const void *)bytes;
    if (head->magic != TAP_ENTRY_MAGIC || head->meta_bytes > META_MAX || head->seq > INT64_MAX ||
        head->length > INT64_MAX - offset)
        return TAP_E_CORRUPT;
    size_t need = ENTRY_MIN + (size_t)head->meta_bytes;
    if (need > avail)
        return TAP_E_TRUNCATED;
    bytes = window_at(scan, offset, need, &got, err);
    if (!bytes)
        return err->status;
    return got < need ? TAP_E_TRUNCATED : tap__entry_check(bytes, avail, entry, cut);
}

/* Is anything but zeros between offset and the end of the file? Zeros are space taken in advance. */
static tap_status rest_is_zero(tap_scan *scan, uint64_t offset, bool *zero, tap_error *err)
{
    *zero = true;
    while (offset < scan->file_bytes && *zero) {
        size_t got;
        const uint8_t *bytes = window_at(scan, offset, 1, &got, err);
        if (!bytes)
            return err->status;
        if (!got)
            break;
        *zero = bytes[0] == 0 && memcmp(bytes, bytes + 1, got - 1) == 0;
        offset += got;
    }
    return TAP_OK;
}

/* The next place at or after *at that could hold an entry: its magic is there. TAP_END: none. */
static tap_status magic_next(tap_scan *scan, uint64_t *at, tap_error *err)
{
    while (*at + ENTRY_MIN <= scan->file_bytes) {
        size_t got, step = 0;
        const uint8_t *bytes = window_at(scan, *at, ENTRY_MIN, &got, err);
        if (!bytes)
            return err->status;
        if (got < ENTRY_MIN)
            return TAP_END;
        for (; step + ENTRY_MIN <= got; step += TAP_ENTRY_ALIGN) {
            uint32_t magic;
            memcpy(&magic, bytes + step, sizeof magic);
            if (magic == TAP_ENTRY_MAGIC) {
                *at += step;
                return TAP_OK;
            }
        }
        *at += step;
    }
    return TAP_END;
}

/* Finds the next entry after damage. Lost entries take at least 256 bytes each: a seq further on than the bytes
 * stepped over allow is of old bytes, or of a payload that looks like entries, or the lost entry knew of numbers that
 * left none. So the first whose seq fits is taken, and only where there is none the first that could follow. */
static tap_status resync(tap_scan *scan, uint64_t *offset, tap_error *err)
{
    uint64_t from = *offset, seq = scan->next_seq > scan->first_seq ? scan->next_seq : scan->first_seq;
    bool any_seq = scan->bad_header && from == TAP_PAGE; /* nothing says where this segment begins */
    uint64_t could_follow = 0;
    for (uint64_t at = from + TAP_ENTRY_ALIGN;; at += TAP_ENTRY_ALIGN) {
        tap_status status = magic_next(scan, &at, err);
        if (status == TAP_END)
            break;
        TAP_TRY(status);
        const tap_entry *entry;
        bool cut;
        status = entry_at(scan, at, &entry, &cut, err);
        if (status != TAP_OK && status != TAP_E_CORRUPT && status != TAP_E_TRUNCATED)
            return status;
        if (status != TAP_OK || entry->seq < seq)
            continue;
        uint64_t gap = entry->seq - seq, lost = (at - from) / ENTRY_MIN;
        if (any_seq || gap <= lost || gap - lost <= entry->absent) {
            *offset = at;
            return TAP_OK;
        }
        if (!could_follow)
            could_follow = at;
    }
    if (could_follow)
        *offset = could_follow;
    return could_follow ? TAP_OK : TAP_END;
}

static void damage(tap_scan *scan, uint64_t offset, uint64_t bytes)
{
    if (!bytes)
        return;
    if (!scan->damage_bytes) {
        scan->damage_segment = scan->segment;
        scan->damage_offset = offset;
    }
    scan->damage_bytes += bytes;
    scan->skipped_bytes += bytes;
}

static tap_status read_header(tap_scan *scan, tap_error *err)
{
    tap_segment_header header;
    ssize_t got = tap__pread_all(scan->fd, &header, sizeof header, 0);
    if (got < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot read segment %u in %s/%s", scan->segment,
                       scan->files->root->path, scan->files->dir);
    scan->window_bytes = 0;
    scan->window_offset = 0;
    scan->offset = TAP_PAGE;
    scan->first_seq = 0;
    scan->bad_header = false;
    if (got == 0) /* made and never written: the writer was killed there, or is at it */
        return TAP_OK;
    scan->bad_header = got < (ssize_t)sizeof header || !tap__segment_header_ok(&header) ||
                       header.segment != scan->segment || header.attempt != scan->files->attempt ||
                       header.rank != scan->files->rank || header.child != scan->files->child;
    if (scan->bad_header)
        return TAP_OK;
    scan->offset = header.first_entry;
    scan->first_seq = header.first_seq;
    return TAP_OK;
}

/* May bytes that are no entry be stepped over? Not where a writer may still be filling them in. */
static bool is_final(const tap_scan *scan)
{
    if (!scan->growing)
        return true;
    char name[TAP_ATTEMPT_NAME];
    return tap__dir_has(scan->files->root, tap__segment_name(scan->files, scan->segment + 1, name));
}

/* Opens segment `number`; TAP_END when it is not there. */
static tap_status open_segment(tap_scan *scan, uint32_t number, tap_error *err)
{
    char name[TAP_ATTEMPT_NAME];
    int fd = tap__dir_file(scan->files->root, tap__segment_name(scan->files, number, name), O_RDONLY);
    if (fd < 0)
        return errno == ENOENT ? TAP_END
                               : tap_fail_errno(err, TAP_E_IO, "cannot open %s/%s", scan->files->root->path, name);
    if (scan->fd >= 0)
        close(scan->fd);
    scan->fd = fd;
    scan->segment = number;
    struct stat st;
    if (fstat(fd, &st) != 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot look at segment %u in %s/%s", number,
                              scan->files->root->path, scan->files->dir);
    scan->file_bytes = (uint64_t)st.st_size;
    TAP_TRY(read_header(scan, err));
    if ((scan->bad_header || scan->file_bytes == 0) && !is_final(scan)) { /* its writer has only just made it */
        scan->fd = -1;
        close(fd);
        return TAP_END;
    }
    return TAP_OK;
}

/* The smallest number at or above `from` that exists; false when there is none. */
static tap_status segment_from(const tap_scan *scan, uint32_t from, uint32_t *number, bool *found, tap_error *err)
{
    uint32_t *list;
    size_t count;
    *found = false;
    TAP_TRY(tap__segment_list(scan->files, &list, &count, err));
    for (size_t i = 0; i < count && !*found; i++) {
        *found = list[i] >= from;
        *number = list[i];
    }
    tap__free(list);
    return TAP_OK;
}

/* Goes on to segment `from` or, when it is not there, the next that is. TAP_END: none. */
static tap_status advance(tap_scan *scan, uint32_t from, bool first, tap_error *err)
{
    tap_status status = first ? TAP_END : open_segment(scan, from, err);
    if (status != TAP_END)
        return status;
    uint32_t number;
    bool found;
    TAP_TRY(segment_from(scan, from, &number, &found, err));
    if (!found || (scan->end_segment && number >= scan->end_segment)) {
        if (!scan->growing && scan->end_segment > from) {
            scan->missing_segments = scan->end_segment - from;
            scan->missing_first = from;
            scan->segment_missing = true;
            scan->end_segment = from; /* said once */
        }
        return TAP_END;
    }
    TAP_TRY(open_segment(scan, number, err));
    if (first && (number == from || scan->growing)) {
        /* What came before was deleted by a rule, not lost. While it grows the description may be older than that. */
        scan->next_seq = scan->first_seq;
        scan->any_start = scan->bad_header && number > 0;
    } else if (number > from) {
        scan->missing_segments = number - from;
        scan->missing_first = from;
        scan->segment_missing = true;
    }
    return TAP_OK;
}

static bool read_tally(const tap_attempt_files *files, const tap_attempt_info *info, tap_tally *tally)
{
    if (info->tally[0])
        return tap__tally_read(info->tally, tally);
    char name[TAP_ATTEMPT_NAME];
    return tap__ring_read_tally(files->root, tap__attempt_name(files, ".ring", name), tally);
}

tap_status tap__scan_open(tap_scan *scan, const tap_attempt_files *files, const tap_attempt_info *info, tap_error *err)
{
    (void)err;
    *scan = (tap_scan){.files = files, .fd = -1};
    if (info) {
        scan->segment = info->first_segment;
        if (info->ended[0] && info->segments)
            scan->end_segment = info->first_segment + info->segments;
    }
    tap_tally tally;
    if (info && !info->ended[0] && read_tally(files, info, &tally)) {
        scan->counted = true;
        scan->tally_seq = tap__tally_marked(&tally).seq;
        scan->missing = tap__tally_missing(&tally, 0);
    }
    return TAP_OK;
}

void tap__scan_close(tap_scan *scan)
{
    if (scan->fd >= 0)
        close(scan->fd);
    tap__free(scan->window);
    scan->window = NULL;
    scan->fd = -1;
}

static tap_status look_again(tap_scan *scan, tap_error *err)
{
    struct stat st;
    if (fstat(scan->fd, &st) != 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot look at segment %u in %s/%s", scan->segment,
                              scan->files->root->path, scan->files->dir);
    scan->window_bytes = 0;
    scan->file_bytes = (uint64_t)st.st_size;
    return TAP_OK;
}

/* The current segment has no further entry at scan->offset: is there a next segment? TAP_OK: it is open now. What
 * is left unread in this one is damage, unless it is zeros. */
static tap_status leave_segment(tap_scan *scan, tap_error *err)
{
    uint64_t left = scan->offset, end = scan->file_bytes;
    uint32_t segment = scan->segment;
    bool zero = true;
    if (left < end)
        TAP_TRY(rest_is_zero(scan, left, &zero, err));
    tap_status status = scan->ended ? TAP_END : advance(scan, segment + 1, false, err);
    bool final = status == TAP_OK || (status == TAP_END && !scan->growing);
    if (final && !zero && left < end) {
        if (!scan->damage_bytes) {
            scan->damage_segment = segment;
            scan->damage_offset = left;
        }
        scan->damage_bytes += end - left;
        scan->skipped_bytes += end - left;
        scan->damage_is_tail = status == TAP_END;
        if (status == TAP_END)
            scan->offset = end; /* said once */
    }
    return status;
}

/* Takes the entry that was found at scan->offset. */
static void take(tap_scan *scan, const tap_entry *entry, uint64_t *offset)
{
    *offset = scan->offset;
    if (scan->counted && entry->seq >= scan->tally_seq) {
        uint64_t saves = tap__entry_accounts(entry);
        scan->missing -= saves < scan->missing ? saves : scan->missing;
    }
    if (entry->type != TAP_ENTRY_SKIP || entry->count) { /* one without a count only fills the file */
        uint64_t gap = entry->seq - scan->next_seq;
        scan->gap_entries = scan->any_start || gap < entry->absent ? 0 : gap - entry->absent;
        scan->any_start = false;
        bool many = entry->type == TAP_ENTRY_SKIP && entry->count <= INT64_MAX - entry->seq;
        scan->next_seq = entry->seq + (many ? entry->count : 1);
    }
    uint64_t end = scan->offset + entry->length;
    scan->offset = end < scan->file_bytes || scan->growing ? end : scan->file_bytes;
    scan->ended = entry->type == TAP_ENTRY_END;
    if (scan->ended)
        scan->missing = entry->count;
}

static tap_status next_in_segment(tap_scan *scan, const tap_entry **entry, uint64_t *offset, bool *cut, tap_error *err)
{
    bool jumped = false, fresh = !scan->growing;
    for (;;) {
        tap_status status = entry_at(scan, scan->offset, entry, cut, err);
        bool fits = status == TAP_OK && (*entry)->seq >= scan->next_seq;
        bool whole = fits && (!*cut || (*entry)->type == TAP_ENTRY_BIG);
        if (whole || (fits && fresh)) {
            take(scan, *entry, offset);
            return TAP_OK;
        }
        if (status != TAP_OK && status != TAP_E_CORRUPT && status != TAP_E_TRUNCATED)
            return status;
        if (jumped || scan->offset >= scan->file_bytes || !is_final(scan))
            return TAP_END;
        if (!fresh) { /* only now that nobody writes here any more is what we read final */
            fresh = true;
            TAP_TRY(look_again(scan, err));
            continue;
        }
        jumped = true;
        uint64_t found = scan->offset;
        TAP_TRY(resync(scan, &found, err));
        damage(scan, scan->offset, found - scan->offset);
        scan->offset = found;
    }
}

tap_status tap__scan_next(tap_scan *scan, const tap_entry **entry, uint32_t *segment, uint64_t *offset,
                          bool *payload_cut, tap_error *err)
{
    scan->gap_entries = scan->damage_bytes = 0;
    scan->missing_segments = 0;
    scan->damage_is_tail = false;
    tap_error own;
    if (!err)
        err = &own;
    if (!scan->opened || scan->fd < 0) {
        TAP_TRY(advance(scan, scan->segment, !scan->opened, err));
        scan->opened = true;
    }
    for (int looks = 0;;) {
        tap_status status = next_in_segment(scan, entry, offset, payload_cut, err);
        if (status == TAP_OK)
            *segment = scan->segment;
        if (status != TAP_END)
            return status;
        /* What was read may be older than what the file holds now: look again. While it grows, once more after its
         * successor was seen: only then is it certain that nothing was added in between. */
        if (looks == 1 && scan->growing && !is_final(scan))
            return TAP_END;
        if (looks++ < (scan->growing ? 2 : 1)) {
            TAP_TRY(look_again(scan, err));
            continue;
        }
        TAP_TRY(leave_segment(scan, err));
        looks = 0;
    }
}
