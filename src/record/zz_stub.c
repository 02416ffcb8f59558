#include "record/layout.h"
#include "base/status.h"
const tap_layout *tap__layout_at(size_t index) { (void)index; return NULL; }
tap_status tap_file_open(const char *path, tap_file **out, tap_error *err) { *out = NULL; return tap_fail(err, TAP_E_FORMAT, "stub %s", path); }
const char *tap_file_format(const tap_file *file) { (void)file; return ""; }
size_t tap_file_count(const tap_file *file) { (void)file; return 0; }
tap_status tap_file_get(tap_file *file, size_t index, tap_file_entry *out, tap_error *err) { (void)file; (void)index; (void)out; return tap_fail(err, TAP_E_INTERNAL, "stub"); }
void tap_file_close(tap_file *file) { (void)file; }
