#!/usr/bin/env python3
"""Writes the matrix of misuse as a C program, from the header.

For every implemented function: the call with good arguments succeeds; the same call with NULL in each single
pointer position fails and touches nothing (or succeeds, where the header allows NULL); and in each position of
a handle so do garbage, a handle of another kind and a destroyed handle. A function or parameter that this
script does not know is an error: nothing is left out silently.

Usage: matrix.py <include folder> <output.c>
"""

import re
import sys
from pathlib import Path

HEADERS = ["miopen.h", "fusion.h", "primitives.h", "find2.h", "fuseplan.h"]
PROTOTYPE = re.compile(r"MIOPEN_EXPORT\s+miopenStatus_t\s+(\w+)\s*\(([^;]*)\);")

# Parameters where the header allows NULL, by function (a regular expression) and parameter.
NULL_ALLOWED = [
    (r"miopenGetVersion", r".*"),
    (r"miopenDestroy.*", r".*"),
    (r"miopenSetAllocator", r"allocatorContext"),
    (r"miopenSetTensorDescriptor(V2)?", r"stridesA"),
    (r"miopenGet(4d)?TensorDescriptor|miopenGetActivationDescriptor|miopenGetConvolution(Nd)?Descriptor|"
     r"fuseplanGetConvolutionPadding", r"(?!tensorDesc|activDesc|convDesc).*"),
    (r"miopenSetOpArgs.*|fuseplanSetOpArgsPReluForward", r"(?!args|.*Op$|running).*"),
    (r"miopenExecuteFusionPlan_v2", r"workspace"),
    (r"miopenConvolutionBiasActivationForward", r"alpha1|alpha2|workspace|z"),
    (r"miopen(Find)?Convolution.*", r"workSpace|alpha|beta"),
    (r"miopenOpTensor|miopenTransformTensor", r"alpha.*|beta"),
    (r"miopenActivation(Forward|Backward)", r"alpha|beta"),
    (r"miopenBatchNorm.*", r"alpha.*|beta.*|resultSave.*"),
    (r"miopenBatchNorm(alization)?ForwardInference(_V2|Activation)?", r"estimatedMean|estimatedVariance"),
    (r"miopenFindSolutions", r"options|numSolutions"),
    (r"miopenSetFindOptionPreallocated.*", r"buffer"),
    (r"miopenRunSolution", r"workspace"),
    (r"miopenBatchNorm.*Backward.*", r"savedMean|savedInvVariance"),
    (r"fuseplan(GetSupportedTable|ExplainPlan)", r"text"),
    (r"fuseplanSetParallelFor", r"parallelFor|context"),
]

# Handles: type, then the fixture's member by parameter name ("" for any other).
HANDLES = {
    "miopenHandle_t": {"": "handle"},
    "miopenTensorDescriptor_t": {
        "": "x",
        "wDesc": "w",
        "filterDesc": "w",
        "derivedBnDesc": "fresh",
        **dict.fromkeys(
            ["bDesc", "biasDesc", "slopeDesc", "scaleDesc", "estMeanDesc", "estVarianceDesc", "estInvVarianceDesc",
             "biasVarDesc", "savedMeanDesc", "savedVarDesc", "savedVarianceDesc", "bnScaleBiasMeanVarDesc", "bnScaleBiasDiffDesc"],
            "bn",
        ),
    },
    "miopenConvolutionDescriptor_t": {"": "conv"},
    "miopenActivationDescriptor_t": {"": "activation"},
    "miopenOperatorArgs_t": {"": "args"},
    "miopenFusionPlanDescriptor_t": {"": "plan_conv"},
    "miopenProblem_t": {"": "problem", "problem2": "other_problem"},
    "miopenFindOptions_t": {"": "options"},
    "miopenSolution_t": {"": "solution"},
    "miopenFusionOpDescriptor_t": {
        "op": "op_conv",
        "convOp": "op_conv",
        "biasOp": "op_bias",
        "preluOp": "op_prelu",
        "activFwdOp": "op_activation",
        "activBwdOp": "op_act_backward",
    },
}
# Where the function, too, decides.
MEMBERS = {
    ("miopenCreateOpConvForward", "fusePlanDesc"): "plan_empty",
    ("miopenCreateOpBatchNormForward", "fusePlanDesc"): "plan_empty",
    ("miopenCreateOpBatchNormBackward", "fusePlanDesc"): "plan_empty",
    ("miopenCreateOpActivationBackward", "fusePlanDesc"): "plan_backward",
    ("miopenSetOpArgsBatchNormInference", "bnOp"): "op_bn",
    ("miopenSetOpArgsBatchNormForward", "bnOp"): "op_bn_forward",
    ("miopenSetOpArgsBatchNormBackward", "bnOp"): "op_bn_backward",
    ("miopenOpTensor", "bDesc"): "bn",
}

# C expressions, by function and parameter.
VALUES = {
    ("miopenRunSolution", "tensors"): "f->tensors",
    ("miopenLoadSolution", "data"): "f->saved",
    ("miopenLoadSolution", "size"): "f->saved_bytes",
    ("miopenGetSolverIdConvAlgorithm", "solverId"): "f->solver",
}

NUMBERS = {
    **{"n": 1, "c": 4, "h": 5, "w": 5, "nStride": 100, "cStride": 25, "hStride": 5, "wStride": 1},
    **{"nbDims": 4, "num_lens": 4, "spatialDim": 2, "requestedSpatialDim": 2, "op_idx": 0, "requestAlgoCount": 1},
    **{"pad_h": 1, "pad_w": 1, "stride_h": 1, "stride_w": 1, "dilation_h": 1, "dilation_w": 1, "groupCount": 1},
    **{"adj_h": 0, "adj_w": 0, "value": 0, "findMode": 1, "maxSolutionCount": 1, "solution_id": 1},
    **{"workSpaceSize": 0, "workspaceSize": 0, "workspaceSizeInBytes": 0},
    **{"nInputs": 3, "maxSolutions": 1, "attach": 0, "size": 0, "threads": 2},
}
ENUMS = {
    "miopenDataType_t": "miopenFloat",
    "miopenTensorLayout_t": "miopenTensorNCHW",
    "miopenTensorOp_t": "miopenTensorOpAdd",
    "miopenConvolutionMode_t": "miopenConvolution",
    "miopenConvolutionAttrib_t": "MIOPEN_CONVOLUTION_ATTRIB_DETERMINISTIC",
    "miopenConvolutionFindMode_t": "miopenConvolutionFindModeNormal",
    "miopenActivationMode_t": "miopenActivationRELU",
    "miopenBatchNormMode_t": "miopenBNSpatial",
    "miopenFusionDirection_t": "miopenVerticalFusion",
    "fuseplanMathMode_t": "fuseplanMathPrecise",
    "miopenConvFwdAlgorithm_t": "miopenConvolutionFwdAlgoDirect",
    "miopenTuningPolicy_t": "miopenTuningPolicyNone",
    "miopenProblemDirection_t": "miopenProblemDirectionForward",
    "miopenTensorArgumentId_t": "miopenTensorConvolutionX",
    "miopenFindResultsOrder_t": "miopenFindResultsOrderByTime",
}
LISTS = {
    "lens": "{1, 4, 5, 5}",
    "dimsA": "{1, 4, 5, 5}",
    "stridesA": "{100, 25, 5, 1}",
    "padA": "{1, 1}",
    "padBeforeA": "{0, 1}",
    "padAfterA": "{1, 2}",
    "strideA": "{1, 1}",
    "dilationA": "{1, 1}",
    "adjA": "{0, 0}",
}


class Unknown(Exception):
    pass


def value(function, index, type_, name):
    """The good argument, as a C expression."""
    base = type_.replace("const ", "").strip()
    if (function, name) in VALUES:
        return VALUES[function, name]
    if base in HANDLES:
        member = MEMBERS.get((function, name)) or HANDLES[base].get(name) or HANDLES[base].get("")
        if not member:
            raise Unknown
        return f"f->{member}"
    if base == "miopenAcceleratorQueue_t":
        return "NULL"
    if base == "miopenAllocatorFunction":
        return "fixture_take"
    if base == "miopenDeallocatorFunction":
        return "fixture_give"
    if base == "fuseplanParallelFor_t":
        return "fixture_loop"
    if base == "bool":
        return "true"
    if base in ("double", "float"):
        return "1.0"
    if base in ENUMS:
        return ENUMS[base]
    if base in ("int", "unsigned", "size_t", "uint64_t"):
        return str(NUMBERS[name])
    if type_ == "const char*":
        return '"cpu"'
    if base == "char*":
        return "f->text"
    if base in ("int*", "size_t*") and type_.startswith("const "):
        return f"(const {base[:-1]}[]){LISTS[name]}"
    if base == "void*" and re.match(r"alpha|beta", name):
        return "&zero" if name.startswith("beta") else "&one"
    if base == "void*":
        return f"f->data[{index}]"
    if base == "size_t*" and name == "size":
        return "&room"
    if base.endswith("*"):
        return f"({base})f->outs[{index}]"
    raise Unknown


def is_pointer(type_):
    base = type_.replace("const ", "").strip()
    return base.endswith("*") or base in HANDLES or base.endswith(("Function", "For_t"))


def null_allowed(function, name):
    return any(re.fullmatch(f, function) and re.fullmatch(p, name) for f, p in NULL_ALLOWED)


def functions(include):
    for header in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", (include / "miopen" / header).read_text(), flags=re.S)
        for name, parameters in PROTOTYPE.findall(text):
            split = [re.fullmatch(r"(.*?)\s*(\w+)", " ".join(p.split())) for p in parameters.split(",")]
            yield name, [(m.group(1).strip(), m.group(2)) for m in split]


def main():
    include, output = Path(sys.argv[1]), Path(sys.argv[2])
    bodies, pointers = [], 0
    for name, parameters in functions(include):
        calls = []
        bodies.append((name, calls))
        try:
            good = [value(name, i, t, p) for i, (t, p) in enumerate(parameters)]
        except (Unknown, KeyError) as error:
            sys.exit(f"matrix.py does not know a parameter of {name}: {error!r}")
        calls.append(f"    GOOD({name}({', '.join(good)}));")
        for i, (type_, parameter) in enumerate(parameters):
            if not is_pointer(type_):
                continue
            pointers += 1
            bad = lambda expression: f"{name}({', '.join(good[:i] + [expression] + good[i + 1:])})"
            check = "GOOD" if null_allowed(name, parameter) else "BAD"
            calls.append(f"    {check}({bad('NULL')});")
            base = type_.replace("const ", "").strip()
            if base in HANDLES:
                other = "f->conv" if base != "miopenConvolutionDescriptor_t" else "f->x"
                for expression in ("(void*)(uintptr_t)0xdeadbeef", f"(void*){other}", "(void*)destroyed",
                                   "(void*)f->outs"):
                    calls.append(f"    BAD({bad(f'({base}){expression}')});")
    tests = "\n".join(f"static void test_{name}(void) {{\n" + "\n".join(calls) + "\n}\n" for name, calls in bodies)
    runs = "\n".join(f"    test_{name}();" for name, _ in bodies)
    output.write_text(f"""/* Written by matrix.py. */
#include "fixture.h"

static float one = 1, zero = 0;
static int tried = 0;

/* A fresh fixture for each call; a failing call leaves every output as it was. */
#define CALL(call, condition)                                                                       \\
    do {{                                                                                            \\
        fixture_t* f = fixture_make();                                                              \\
        size_t room = TEXT_ROOM;                                                                    \\
        miopenStatus_t status = (call);                                                             \\
        tried++;                                                                                    \\
        if (!(condition))                                                                           \\
            FAIL("%s gave %s (%s)", #call, miopenGetErrorString(status), fuseplanGetLastErrorString()); \\
        if (status != miopenStatusSuccess && !fixture_is_untouched(f)) FAIL("%s wrote", #call);     \\
        fixture_end(f);                                                                             \\
        (void)room;                                                                                 \\
    }} while (0)
#define GOOD(call) CALL(call, status == miopenStatusSuccess)
#define BAD(call) CALL(call, status != miopenStatusSuccess)

static miopenTensorDescriptor_t destroyed;
{tests}
int main(void) {{
    destroyed = tensor4d(1, 1, 1, 1);
    OK(miopenDestroyTensorDescriptor(destroyed));
{runs}
    printf("%d calls: {len(bodies)} functions, {pointers} pointer parameters, each NULL once\\n", tried);
    return 0;
}}
""")


main()
