/* cmd_wait.c - waits for the writers of a recording. */
#include "cli.h"
#include "jsonout.h"

#include <stdlib.h>

int cmd_wait(const cli *args)
{
    const char *seconds = args->value[OPT_TIMEOUT];
    int timeout_ms = seconds ? (int)(strtod(seconds, NULL) * 1000) : -1;
    tap_error err = {0};
    tap_status status = tap_run_wait(args->argument[0], timeout_ms, &err);
    if (status != TAP_OK && status != TAP_E_TIMEOUT)
        return trouble_error(args, &err);
    if (args->json) {
        jsonout json = {0};
        json_open(&json, NULL, '{');
        json_bool(&json, "finished", status == TAP_OK);
        json_end(&json);
    } else if (status == TAP_E_TIMEOUT) {
        trouble(args, "%s is still being written after %s seconds", args->argument[0], seconds ? seconds : "?");
    }
    return status == TAP_OK ? EXIT_FINE : EXIT_DIFFERENT;
}
