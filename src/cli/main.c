/* main.c - the command tensortap. */
#include "tensortap/tensortap.h"
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "__writer") == 0)
        return tap_writer_main(atoi(argv[2]));
    return 2;
}
