/* cmd_version.c - what this build is and can do. */
#include "cli.h"
#include "jsonout.h"

/* Known to the library by name only. */
static const char *const FORMATS[] = {"npy", "pt", "safetensors", "print"};
static const char *const LAYOUTS[] = {"native", "msprobe", "msprobe_modules", "troubleshooter",
                                      "torch_npu", "torchair", "mindspore"};

static void list_json(jsonout *json, const char *key, const char *const *names, size_t count)
{
    json_open(json, key, '[');
    for (size_t i = 0; i < count; i++)
        json_text(json, NULL, names[i]);
    json_close(json, ']');
}

static void list_print(const char *label, const char *const *names, size_t count)
{
    fputs(tap_text(label), stdout);
    for (size_t i = 0; i < count; i++)
        printf("%s%s", i ? ", " : "", names[i]);
    putchar('\n');
}

static void dtypes_json(jsonout *json)
{
    json_open(json, "dtypes", '[');
    for (int dtype = TAP_DTYPE_NONE + 1; dtype < TAP_DTYPE_END; dtype++)
        json_text(json, NULL, tap_dtype_describe((tap_dtype)dtype)->name);
    json_close(json, ']');
}

int cmd_version(const cli *args)
{
    enum { FORMAT_COUNT = sizeof FORMATS / sizeof FORMATS[0], LAYOUT_COUNT = sizeof LAYOUTS / sizeof LAYOUTS[0] };
    if (args->json) {
        jsonout json = {0};
        json_open(&json, NULL, '{');
        json_text(&json, "version", tap_version());
        json_text(&json, "isa", tap_isa_name());
        list_json(&json, "formats", FORMATS, FORMAT_COUNT);
        list_json(&json, "layouts", LAYOUTS, LAYOUT_COUNT);
        dtypes_json(&json);
        json_end(&json);
        return EXIT_FINE;
    }
    printf("tensortap %s\n", tap_version());
    say(stdout, "instruction set: %s\n", tap_isa_name());
    list_print(N_("files: "), FORMATS, FORMAT_COUNT);
    list_print(N_("layouts: "), LAYOUTS, LAYOUT_COUNT);
    return EXIT_FINE;
}
