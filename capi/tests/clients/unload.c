/*
 * A program that unloads the library while its threads start and end: `dlopen`, a handle and an execution in a thread
 * that ends, `dlclose` at once, many times, each in a process of its own. Nothing of the library may run where nothing
 * is mapped.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

enum { PROCESSES = 60 };

static void* library;

static void* function(const char* name) {
    void* found = dlsym(library, name);
    if (!found) FAIL("dlsym: %s", dlerror());
    return found;
}

static void* create(void* unused) {
    miopenHandle_t handle;
    miopenStatus_t (*open)(miopenHandle_t*);
    *(void**)&open = function("miopenCreate");
    CHECK(open(&handle) == miopenStatusSuccess);
    return unused;
}

static void process(void) {
    pthread_t thread;
    /* This program is not linked to the library, or `dlclose` would do nothing. */
    CHECK(dlopen("libMIOpen.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL);
    library = dlopen("libMIOpen.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) FAIL("dlopen: %s", dlerror());
    CHECK(pthread_create(&thread, NULL, create, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(dlclose(library) == 0);
    /* Long enough for workers to look for work in vain, and to sleep. */
    usleep(3000);
}

int main(int count, char** arguments) {
    if (count > 1) return process(), 0;
    /* Whatever threads there are, the library stays. */
    library = dlopen("libMIOpen.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) FAIL("dlopen: %s", dlerror());
    CHECK(dlclose(library) == 0);
    CHECK(dlopen("libMIOpen.so.1", RTLD_NOW | RTLD_NOLOAD) == library);
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            setenv("FUSEPLAN_NUM_THREADS", "2", 1);
            execl(arguments[0], arguments[0], "once", (char*)NULL);
            _exit(127);
        }
        CHECK(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("process %d of %d ended with %#x", i, PROCESSES, status);
    }
    return 0;
}
