/* segment.c - segment files: buffered for small writes, O_DIRECT for large ones. */
#include "record/native/segment.h"

#include "base/io.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* Below this the page cache wins: a direct write waits for the disk. */
#define DIRECT_FROM (1u << 20)
#define LOCK_TRIES 200

bool tap__segment_header_ok(const tap_segment_header *header)
{
    return header->magic == TAP_SEGMENT_MAGIC && header->version == 1 && header->header_bytes == TAP_PAGE &&
           header->first_entry >= TAP_PAGE && header->first_entry < 2 * TAP_PAGE &&
           header->first_entry % TAP_ENTRY_ALIGN == 0 && header->first_seq <= INT64_MAX &&
           header->header_hash == tap_hash_bytes(header, offsetof(tap_segment_header, header_hash));
}

static tap_status segment_open(tap_segment *segment, const tap_attempt_files *files, uint32_t number, int flags,
                               tap_error *err)
{
    *segment = (tap_segment){files, number, -1, -1};
    char name[TAP_ATTEMPT_NAME];
    tap__segment_name(files, number, name);
    segment->fd = tap__dir_file(files->root, name, O_RDWR | flags);
    if (segment->fd < 0)
        return tap_fail_errno(err, TAP_E_IO, "cannot open the segment %s/%s", files->root->path, name);
    segment->direct = tap__dir_file(files->root, name, O_WRONLY | O_DIRECT);
    return TAP_OK;
}

tap_status tap__segment_create(tap_segment *segment, const tap_attempt_files *files, tap_segment_header *header,
                               tap_error *err)
{
    TAP_TRY(segment_open(segment, files, header->segment, O_CREAT, err));
    tap__segment_lock(segment);
    header->header_hash = tap_hash_bytes(header, offsetof(tap_segment_header, header_hash));
    if (tap__pwrite_all(segment->fd, header, sizeof *header, 0) == 0)
        return TAP_OK;
    tap_status status = tap_fail_errno(err, TAP_E_IO, "cannot write segment %u of %s/%s", header->segment,
                                       files->root->path, files->dir);
    tap__segment_close(segment);
    return status;
}

tap_status tap__segment_reopen(tap_segment *segment, const tap_attempt_files *files, uint32_t number, tap_error *err)
{
    return segment_open(segment, files, number, 0, err);
}

void tap__segment_lock(tap_segment *segment)
{
    for (int i = 0; i < LOCK_TRIES && segment->fd >= 0 && flock(segment->fd, LOCK_EX | LOCK_NB) != 0; i++)
        usleep(1000);
}

static int buffered(tap_segment *segment, const uint8_t *bytes, uint64_t len, uint64_t offset)
{
    return len && tap__pwrite_all(segment->fd, bytes, len, (off_t)offset) ? errno : 0;
}

int tap__segment_write(tap_segment *segment, const void *bytes, uint64_t len, uint64_t offset)
{
    const uint8_t *at = bytes;
    uint64_t lead = (TAP_PAGE - offset % TAP_PAGE) % TAP_PAGE;
    if (segment->direct < 0 || len < DIRECT_FROM || ((uintptr_t)at + lead) % TAP_PAGE)
        return buffered(segment, at, len, offset);
    uint64_t whole = (len - lead) / TAP_PAGE * TAP_PAGE;
    int failed = buffered(segment, at, lead, offset);
    if (failed)
        return failed;
    if (tap__pwrite_all(segment->direct, at + lead, whole, (off_t)(offset + lead)) != 0) {
        if (errno != EINVAL) /* this file system refuses after all: from now on buffered */
            return errno;
        close(segment->direct);
        segment->direct = -1;
        return buffered(segment, at + lead, len - lead, offset + lead);
    }
    return buffered(segment, at + lead + whole, len - lead - whole, offset + lead + whole);
}

void tap__segment_cut(tap_segment *segment, uint64_t end)
{
    if (segment->fd >= 0 && ftruncate(segment->fd, (off_t)end) != 0)
        errno = 0; /* readers step over the rest: it has no valid header, or the seq of an entry they have */
}

int tap__segment_sync(tap_segment *segment)
{
    return segment->fd >= 0 && fdatasync(segment->fd) != 0 ? errno : 0;
}

void tap__segment_sync_name(const tap_segment *segment)
{
    DIR *dir = tap__dir_list(segment->files->root, segment->files->dir);
    if (!dir)
        return;
    fsync(dirfd(dir));
    closedir(dir);
}

void tap__segment_close(tap_segment *segment)
{
    if (segment->fd >= 0)
        close(segment->fd);
    if (segment->direct >= 0)
        close(segment->direct);
    segment->fd = segment->direct = -1;
}
