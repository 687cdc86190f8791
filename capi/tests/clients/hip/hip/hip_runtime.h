/* HIP's larger header, which has the smaller one in it. */
#ifndef STANDIN_HIP_RUNTIME_H
#define STANDIN_HIP_RUNTIME_H

#include <hip/hip_runtime_api.h>

#endif
