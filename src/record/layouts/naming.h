/* naming.h - everything that becomes part of a path is made here: the producer's counters, and below them what the
 * layouts' name functions share, the ways to put a component of a path together. */
#ifndef TAP_RECORD_NAMING_H
#define TAP_RECORD_NAMING_H

#include "record/layouts/layout.h"
#include "record/layouts/strmap.h"

#include <pthread.h>

/* options are copied, its strings are not. */
tap_status tap__namer_create(const tap_layout *layout, const tap_layout_options *options, tap_namer **out,
                             tap_error *err);
/* Locks, names, unlocks. out is cleared first. */
tap_status tap__namer_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err);
void tap__namer_free(tap_namer *namer);

/* Makes a name usable as one component of a path: "/", control bytes, bytes that are not UTF-8, and "." and ".." are
 * written %XX, "%" too where it would read as such, and the first "." of names that are ours (".tensortap", ".tap-...")
 * and of what torchair puts behind a name (".INPUT", ".OUTPUT"); more than max_bytes are cut and end in "~" and 16 hex digits of
 * the whole name's hash. Never fails for content. One place names files: everything that reaches a path goes here. */
void tap__name_escape(tap_strbuf *out, const char *name, size_t len, size_t max_bytes);
/* Turns %XX back; what was cut stays cut. */
void tap__name_unescape(tap_strbuf *out, const char *name, size_t len);

/* ---------------------------------------------------------------------------------------- for the layouts' files */

/* Longest component of a path that file systems take. */
#define TAP_NAME_MAX 255u

/* Who took a name that two things could have: see tap__claim. */
typedef struct tap_claims {
    tap_strmap owners;
} tap_claims;

/* A file lately named and what it was named for: tells {"a.b": x} from {"a": {"b": y}}, which show alike. */
typedef struct tap_recent {
    uint64_t file, owner;
} tap_recent;
#define TAP_RECENT_COUNT 4096u

struct tap_namer {
    const tap_layout *layout;
    tap_layout_options options;
    pthread_mutex_t lock;
    tap_strmap counts;   /* by the layout's own key */
    uint64_t next_id;
    uint64_t last_stamp; /* of a default name, milliseconds since 1970 */
    tap_claims claims;
    tap_recent *recent;
    tap_strbuf scratch, key;
    bool said;           /* the one remark of this layout was made */
};

/* A leaf that gets a file: bytes are kept, it is no slot, and it is a tensor (or a number, where numbers is set). */
bool tap__leaf_has_file(const tap_namer *namer, const tap_leaf *leaf, bool numbers);

/* The next number of key, from 0. */
tap_status tap__namer_count(tap_namer *namer, const char *key, size_t len, uint64_t *out, tap_error *err);

/* Appends prefix, name, middle, the shown path after a "." (when there is one) and suffix as one component; name and
 * path are escaped and cut so that all of it fits TAP_NAME_MAX. prefix, middle and suffix are safe already. */
void tap__component(tap_strbuf *out, const char *prefix, const char *name, size_t name_len, const char *middle,
                    const char *path, size_t path_len, const char *suffix);

/* Splits a user's path at "/" and appends its directories, escaped, each with a "/" behind; *file, *file_len are its
 * last part. "." and empty parts go, ".." takes back the part before it; a path that would leave dir is
 * TAP_E_INVALID. An absolute path is taken when it lies below dir. */
tap_status tap__user_path(const tap_layout_options *options, const char *path, tap_strbuf *out, const char **file,
                          size_t *file_len, tap_error *err);

/* "_rank<R>" and "_child<pid>" where two processes could otherwise write one file; "" else. text: 48 bytes. */
void tap__process_part(const tap_layout_options *options, bool ranks_share, char *text, size_t cap);

/* Of several owners that want one name the first gets it, the others name~1, name~2, ...: appends what owner gets.
 * false: no memory. *number: the number after "~", 0 for the plain name. */
bool tap__claim(tap_claims *claims, const char *name, size_t len, char owner_kind, const char *owner, size_t owner_len,
                tap_strbuf *out, unsigned *number);
void tap__claims_free(tap_claims *claims);

/* dtype as it is in an npy file: types numpy lacks widen to float32 or complex64. */
tap_dtype tap__npy_dtype(tap_dtype dtype);

/* The rows of the table. */
tap_status tap__torch_npu_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err);
tap_status tap__torchair_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err);
tap_status tap__mindspore_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err);
tap_status tap__troubleshooter_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err);
tap_status tap__msprobe_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err);
tap_status tap__msprobe_modules_name(tap_namer *namer, const tap_leaf *leaf, tap_strbuf *out, tap_error *err);

tap_status tap__msprobe_collect_open(const tap_layout_options *options, tap_collector **out, tap_error *err);
tap_status tap__msprobe_modules_open(const tap_layout_options *options, tap_collector **out, tap_error *err);
tap_status tap__msprobe_collect(tap_collector *collector, const tap_entry *entry, const void *payload, tap_error *err);
tap_status tap__msprobe_collect_flush(tap_collector *collector, uint64_t now_ns, bool force, tap_error *err);
bool tap__msprobe_collect_waits(const tap_collector *collector, const int64_t *step, uint64_t seq);
void tap__msprobe_collect_close(tap_collector *collector);

bool tap__torch_npu_detect(tap_dir *dir, const char *only);
bool tap__torchair_detect(tap_dir *dir, const char *only);
bool tap__mindspore_detect(tap_dir *dir, const char *only);
bool tap__troubleshooter_detect(tap_dir *dir, const char *only);
bool tap__msprobe_detect(tap_dir *dir, const char *only);
bool tap__msprobe_modules_detect(tap_dir *dir, const char *only);
tap_status tap__torch_npu_read(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err);
tap_status tap__torchair_read(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err);
tap_status tap__mindspore_read(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err);
tap_status tap__troubleshooter_read(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err);
tap_status tap__msprobe_read(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err);
tap_status tap__msprobe_modules_read(tap_dir *dir, const char *only, tap_record_fn add, void *user, tap_error *err);

#endif
