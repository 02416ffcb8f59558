/* fault_names.c - names of every kind: fault_names DIR LAYOUT COUNT. Saves COUNT distinct names, names of 10,000
 * characters, and names that mean something to a file system. */
#include "tensortap/tensortap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tap_recorder *recorder;

static void save(const char *name, float value)
{
    tap_tensor tensor = {&value, TAP_F32, 0, NULL, NULL};
    if (tap_save(recorder, name, &tensor, NULL) != TAP_OK)
        printf("not saved: %.60s\n", name);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    tap_options options;
    tap_options_init(&options);
    options.dir = argv[1];
    options.layout = argv[2];
    tap_error err;
    if (tap_recorder_open(&options, &recorder, &err) != TAP_OK) {
        puts(err.message);
        return 3;
    }
    for (int i = 0; i < atoi(argv[3]); i++) {
        char name[64];
        snprintf(name, sizeof name, "layer.%d/weight", i);
        save(name, (float)i);
    }
    char *text = malloc(10001);
    for (int i = 0; i < 3; i++) {
        memset(text, 'a' + i, 10000);
        text[10000] = 0;
        text[0] = (char)('0' + i);
        save(text, (float)i);
    }
    static const char *const ODD[] = {"..", ".", "../../escape", "a/../../b", "tab\tand\nline", "nul-like %00", "层.注意力",
                                      "\xff\xfe", "", " ", "-rf", "a|b", "%2e%2e", "CON", "x.npy"};
    for (size_t i = 0; i < sizeof ODD / sizeof ODD[0]; i++)
        save(ODD[i], (float)i);
    free(text);
    tap_status status = tap_recorder_close(recorder, &err);
    printf("close %s %s\n", tap_status_name(status), status ? err.message : "");
    return 0;
}
