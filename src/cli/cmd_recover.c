/* cmd_recover.c - drains what a dead writer left behind. */
#include "records.h"

int cmd_recover(const cli *args)
{
    uint64_t records = 0;
    tap_error err = {0};
    if (tap_run_recover(args->argument[0], &records, &err) != TAP_OK)
        return trouble_error(args, &err);
    if (args->json) {
        jsonout json = {0};
        json_open(&json, NULL, '{');
        json_uint(&json, "records", records);
        json_end(&json);
    } else if (records) {
        char text[TEXT_MAX];
        say(stdout, "recovered %s; tensortap verify %s tells whether any are missing\n",
            counted_text(text, records, N_("%llu record"), N_("%llu records")), args->argument[0]);
    } else {
        say(stdout, "nothing was left to recover\n");
    }
    return EXIT_FINE;
}
