/* py_source.c - the file and line of a tap. Where our own modules make the call (a watched module's hook, a stand-in
 * for another tool), it is the line of the user's that led there: frames of ours are passed over, and then those of
 * torch that lie between. */
#include "py_core.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { DIR_BYTES = 1024 };

typedef enum frame_owner {
    OWNER_USER,
    OWNER_TORCH,
    OWNER_SELF
} frame_owner;

/* Places in code seen: a code object and an instruction of it give a file and a line. Finding the line means to walk a
 * table of the whole function, so it is kept; a newcomer takes the place of an older one. */
typedef struct place {
    PyObject *code, *filename;
    int instruction, line;
    frame_owner owner;
} place;

static place places[256];
/* not in the limited API, but exported by every Python that we run in from 3.11 and 3.9 on */
static int (*frame_instruction)(PyFrameObject *frame);
static PyFrameObject *(*frame_back)(PyFrameObject *frame);
static char own_dir[DIR_BYTES], torch_dir[DIR_BYTES]; /* with the last slash; "" when not known */

/* Keeps path up to its last slash. */
static void keep_dir(char *dir, const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    size_t len = slash ? (size_t)(slash - path) + 1 : 0;
    if (len >= DIR_BYTES)
        len = 0;
    memcpy(dir, path ? path : "", len);
    dir[len] = 0;
}

/* Torch may be imported long after us. */
static void find_torch(void)
{
    PyObject *modules = PyImport_GetModuleDict();
    PyObject *torch = modules ? PyDict_GetItemString(modules, "torch") : NULL;
    PyObject *file = torch ? PyObject_GetAttrString(torch, "__file__") : NULL;
    if (file && PyUnicode_Check(file))
        keep_dir(torch_dir, PyUnicode_AsUTF8AndSize(file, NULL));
    Py_XDECREF(file);
    PyErr_Clear();
}

static bool lies_in(const char *path, const char *dir)
{
    return *dir && strncmp(path, dir, strlen(dir)) == 0;
}

static frame_owner owner_of(const char *filename)
{
    if (lies_in(filename, own_dir))
        return OWNER_SELF;
    if (!*torch_dir)
        find_torch();
    return lies_in(filename, torch_dir) ? OWNER_TORCH : OWNER_USER;
}

/* NULL without an exception: there is no knowing. The line may have changed where frame_instruction is missing. */
static const place *place_of(PyFrameObject *frame)
{
    PyObject *code = (PyObject *)PyFrame_GetCode(frame);
    int instruction = frame_instruction ? frame_instruction(frame) : -1;
    place *at = &places[(((uintptr_t)code >> 5) + (size_t)(unsigned)instruction) % 256];
    if (at->code != code || at->instruction != instruction) {
        PyObject *filename = PyObject_GetAttrString(code, "co_filename");
        const char *text = filename ? PyUnicode_AsUTF8AndSize(filename, NULL) : NULL;
        if (!text) {
            PyErr_Clear();
            Py_XDECREF(filename);
            Py_DECREF(code);
            return NULL;
        }
        PyObject *old_code = at->code, *old_filename = at->filename;
        *at = (place){Py_NewRef(code), filename, instruction, PyFrame_GetLineNumber(frame), owner_of(text)};
        Py_XDECREF(old_code);
        Py_XDECREF(old_filename);
    }
    if (!frame_instruction)
        at->line = PyFrame_GetLineNumber(frame);
    Py_DECREF(code); /* the place holds it */
    return at;
}

static void set_source(tap_save_info *info, const place *at)
{
    info->source = PyUnicode_AsUTF8AndSize(at->filename, NULL);
    info->line = at->line;
}

/* The caller of our own modules, and what of torch lies between, passed over. info keeps what it has where only those
 * are left. */
static void set_callers_source(tap_save_info *info, PyFrameObject *frame)
{
    Py_INCREF(frame);
    while (frame) {
        const place *at = place_of(frame);
        bool found = at && at->owner == OWNER_USER;
        if (found)
            set_source(info, at);
        PyFrameObject *back = found ? NULL : frame_back(frame);
        Py_DECREF(frame);
        frame = back;
    }
}

void source_fill(tap_save_info *info)
{
    PyFrameObject *frame = PyEval_GetFrame();
    const place *at = frame ? place_of(frame) : NULL;
    if (!at)
        return;
    set_source(info, at);
    if (at->owner == OWNER_SELF && frame_back)
        set_callers_source(info, frame);
}

void source_init(void)
{
    Dl_info self;
    if (dladdr((void *)(uintptr_t)&source_init, &self))
        keep_dir(own_dir, self.dli_fname);
    memcpy(&frame_instruction, &(void *){dlsym(RTLD_DEFAULT, "PyFrame_GetLasti")}, sizeof frame_instruction);
    memcpy(&frame_back, &(void *){dlsym(RTLD_DEFAULT, "PyFrame_GetBack")}, sizeof frame_back);
}
