/* Versions: of the MIOpen interface that is offered, and of fuseplan. */
#ifndef FUSEPLAN_MIOPEN_VERSION_H
#define FUSEPLAN_MIOPEN_VERSION_H

/* The MIOpen release whose interface these headers follow; also what miopenGetVersion answers. */
#define MIOPEN_VERSION_MAJOR 3
#define MIOPEN_VERSION_MINOR 5
#define MIOPEN_VERSION_PATCH 0
#define MIOPEN_VERSION_TWEAK 0

/* The version of fuseplan itself. */
#define FUSEPLAN_VERSION_MAJOR 0
#define FUSEPLAN_VERSION_MINOR 1
#define FUSEPLAN_VERSION_PATCH 0

#endif
