/* fake_cuda_old.c - a driver that lacks most of what src/device/driver.h names, as one of years ago might: every stream captures. */
int cuStreamIsCapturing(void *stream, int *status)
{
    (void)stream;
    *status = 1;
    return 0;
}
