/* Visibility of the library's functions. */
#ifndef FUSEPLAN_MIOPEN_EXPORT_H
#define FUSEPLAN_MIOPEN_EXPORT_H

#ifndef MIOPEN_EXPORT
#if defined(_WIN32)
#define MIOPEN_EXPORT __declspec(dllimport)
#elif defined(__GNUC__)
#define MIOPEN_EXPORT __attribute__((visibility("default")))
#else
#define MIOPEN_EXPORT
#endif
#endif

#endif
