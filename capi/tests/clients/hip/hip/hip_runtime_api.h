/*
 * As much of HIP as programs need to be compiled with its stream type: what the C library's header looks for.
 * Like HIP's own header it wants to know its platform, which a compiler for HIP settles.
 */
#ifndef STANDIN_HIP_RUNTIME_API_H
#define STANDIN_HIP_RUNTIME_API_H

#if defined(__HIP__) && !defined(__HIP_PLATFORM_AMD__)
#define __HIP_PLATFORM_AMD__ 1
#endif
#if !defined(__HIP_PLATFORM_AMD__) && !defined(__HIP_PLATFORM_HCC__)
#error "no platform: define __HIP_PLATFORM_AMD__"
#endif

typedef struct ihipStream_t* hipStream_t;

#endif
