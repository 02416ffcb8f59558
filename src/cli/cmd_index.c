/* cmd_index.c - builds the index of a recording anew. */
#include "records.h"
#include "term.h"

int cmd_index(const cli *args)
{
    progress bar;
    uint64_t records = 0;
    tap_error err = {0};
    interrupt_catch();
    progress_start(&bar, tap_text("indexing"), true);
    tap_status status = tap_run_index(args->argument[0], progress_step, &bar, &records, &err);
    progress_clear();
    interrupt_finish();
    if (status != TAP_OK)
        return trouble_error(args, &err);
    if (!args->json) {
        char text[TEXT_MAX];
        say(stdout, "indexed %s\n", counted_text(text, records, N_("%llu record"), N_("%llu records")));
        return EXIT_FINE;
    }
    jsonout json = {0};
    json_open(&json, NULL, '{');
    json_uint(&json, "records", records);
    json_end(&json);
    return EXIT_FINE;
}
