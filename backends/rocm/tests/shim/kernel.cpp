// One text and what shim.cpp wants to know of it.
#include "shim.h"

#include TEXT

extern const unsigned long shim_argument_bytes = sizeof(Args);
extern const unsigned shim_wave = WAVE;
void shim_kernel(const void* arguments) { fuseplan_kernel(*(const Args*)arguments); }
