/* layout.c - the table of layouts, and the one way a tensor's file is written. */
#include "record/layouts/layout.h"

#include "format/pt.h"
#include "base/status.h"
#include "record/layouts/naming.h"

#include <stdio.h>
#include <string.h>

/* In order of detection: what can be told for certain comes first, plain names of files last. */
static const tap_layout LAYOUTS[] = {
    {.name = "native", .native = true},
    {.name = "msprobe", .file_format = "pt", .name_file = tap__msprobe_name,
     .collect_open = tap__msprobe_collect_open, .collect = tap__msprobe_collect,
     .collect_flush = tap__msprobe_collect_flush, .collect_waits = tap__msprobe_collect_waits, .collect_close = tap__msprobe_collect_close,
     .detect = tap__msprobe_detect, .read = tap__msprobe_read},
    {.name = "msprobe_modules", .file_format = "pt", .name_file = tap__msprobe_modules_name,
     .collect_open = tap__msprobe_modules_open, .collect = tap__msprobe_collect,
     .collect_flush = tap__msprobe_collect_flush, .collect_waits = tap__msprobe_collect_waits, .collect_close = tap__msprobe_collect_close,
     .detect = tap__msprobe_modules_detect, .read = tap__msprobe_modules_read},
    {.name = "torchair", .file_format = "npy", .name_file = tap__torchair_name,
     .detect = tap__torchair_detect, .read = tap__torchair_read},
    {.name = "mindspore", .file_format = "npy", .name_file = tap__mindspore_name,
     .detect = tap__mindspore_detect, .read = tap__mindspore_read},
    {.name = "torch_npu", .file_format = "pt", .one_file_per_value = true, .name_file = tap__torch_npu_name,
     .detect = tap__torch_npu_detect, .read = tap__torch_npu_read},
    {.name = "troubleshooter", .file_format = "npy", .name_file = tap__troubleshooter_name,
     .detect = tap__troubleshooter_detect, .read = tap__troubleshooter_read},
};
enum { LAYOUT_COUNT = sizeof LAYOUTS / sizeof LAYOUTS[0] };

tap_layout_options tap__layout_options(tap_dir *dir, const tap_ring_config *config)
{
    return (tap_layout_options){
        .dir = dir,
        .dir_shown = config->dir_shown,
        .child = config->child,
        .several_nodes = config->several_nodes,
        .rank = config->rank,
        .world_size = config->world_size,
        .device_index = config->device_index,
        .pid = config->pid,
        .distributed = config->distributed,
        .checksum = (tap_checksum)config->checksum,
        .keep = config->keep,
        .framework = config->framework,
        .first_step = config->first_step,
    };
}

tap_status tap__layout_child_dir(tap_dir *root, int32_t rank, int32_t child, tap_dir **out, tap_error *err)
{
    char name[48];
    snprintf(name, sizeof name, "rank%d/child%d", rank, child);
    return tap__dir_below(root, name, true, out, err);
}

const tap_layout *tap__layout_at(size_t index)
{
    return index < LAYOUT_COUNT ? &LAYOUTS[index] : NULL;
}

const tap_layout *tap__layout_find(const char *name)
{
    for (size_t i = 0; i < LAYOUT_COUNT; i++)
        if (strcmp(LAYOUTS[i].name, name) == 0)
            return &LAYOUTS[i];
    return NULL;
}

const char *tap__layout_names(void)
{
    return "native, msprobe, msprobe_modules, torchair, mindspore, torch_npu, troubleshooter";
}

static tap_status write_files(const tap_layout *layout, tap_dir *dir, const char *relative,
                              const tap_tensor *tensors, size_t count, bool list, tap_error *err)
{
    if (!layout->file_format)
        return tap_fail(err, TAP_E_INTERNAL, "layout %s has no files of single tensors", layout->name);
    /* msprobe writes npy for MindSpore: the name that was given to the file decides */
    size_t len = strlen(relative);
    bool npy = len > 4 && strcmp(relative + len - 4, ".npy") == 0;
    const char *const *names = list && count == 1 && !npy ? tap__pt_as_list : NULL;
    return tap__file_write_below(dir, relative, npy ? "npy" : "pt", tensors, names, count, npy, err);
}

tap_status tap__layout_write_files(const tap_layout *layout, tap_dir *dir, const char *relative,
                                   const tap_tensor *tensors, size_t count, tap_error *err)
{
    return write_files(layout, dir, relative, tensors, count, true, err);
}

tap_status tap__layout_write_file(const tap_layout *layout, tap_dir *dir, const char *relative,
                                  const tap_tensor *tensor, tap_error *err)
{
    return write_files(layout, dir, relative, tensor, 1, false, err);
}
