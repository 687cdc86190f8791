// What a shared object made of a kernel's text has for whoever launches it; C, with no other header.
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

// Runs the kernel `name` for every work-item of `grid` groups of `block` work-items, with `shared` bytes of shared
// memory and its arguments as one structure. Returns 0, or a number that is not, with the reason in `message`, of
// `room` bytes. Calls of one object wait for each other.
int shim_launch(const char* name, const unsigned grid[3], const unsigned block[3], unsigned shared,
                const void* arguments, unsigned long bytes, char* message, unsigned long room);

#ifdef __cplusplus
}
#endif
