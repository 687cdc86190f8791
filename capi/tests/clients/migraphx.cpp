// In the shape of MIGraphX's convolution that no other operator could be fused with: a problem, a search with or
// without tuning and memory of its own, the solution saved in the compiled program, loaded where that is run, and
// run with the buffers of each call. Then the same for what AMD's tests fuse, and what is refused.
#include "client.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

template <class T, miopenStatus_t (*destroy)(T)> struct destroy_t {
    using pointer = T;
    void operator()(T object) const { OK(destroy(object)); }
};
template <class T, miopenStatus_t (*destroy)(T)> using managed_t = std::unique_ptr<std::remove_pointer_t<T>, destroy_t<T, destroy>>;
using problem_t = managed_t<miopenProblem_t, miopenDestroyProblem>;
using options_t = managed_t<miopenFindOptions_t, miopenDestroyFindOptions>;
using solution_t = managed_t<miopenSolution_t, miopenDestroySolution>;
using tensor_t = managed_t<miopenTensorDescriptor_t, miopenDestroyTensorDescriptor>;
using convolution_t = managed_t<miopenConvolutionDescriptor_t, miopenDestroyConvolutionDescriptor>;
using activation_t = managed_t<miopenActivationDescriptor_t, miopenDestroyActivationDescriptor>;

template <class Managed, class F, class... Args> static Managed make(F create, Args... args) {
    typename Managed::pointer object;
    OK(create(&object, args...));
    return Managed{object};
}

static tensor_t tensor(const shape_t& p, int n, int c, int h, int w) {
    return tensor_t{p.channels_last ? tensor_nhwc(miopenFloat, n, c, h, w) : tensor4d(n, c, h, w)};
}

static solution_t find(miopenHandle_t handle, miopenProblem_t problem, const std::vector<miopenTensorArgument_t>& memory, bool tune) {
    options_t options = make<options_t>(miopenCreateFindOptions);
    if (tune) OK(miopenSetFindOptionTuning(options.get(), 1));
    for (const miopenTensorArgument_t& one : memory) OK(miopenSetFindOptionPreallocatedTensor(options.get(), one.id, one.buffer));
    OK(miopenSetFindOptionPreallocatedWorkspace(options.get(), nullptr, 0));
    miopenSolution_t solution;
    size_t found = 0;
    OK(miopenFindSolutions(handle, problem, options.get(), &solution, &found, 1));
    CHECK(found == 1);
    return solution_t{solution};
}

// What a compiled program keeps of a solution, and what it is again where the program is run.
static solution_t saved_and_loaded(solution_t solution) {
    size_t size = 0, again = 0;
    OK(miopenGetSolutionSize(solution.get(), &size));
    std::vector<char> blob(size);
    OK(miopenSaveSolution(solution.get(), blob.data()));
    uint64_t id = 0, loaded_id = 1;
    OK(miopenGetSolutionSolverId(solution.get(), &id));
    solution.reset();
    solution_t loaded = make<solution_t>(miopenLoadSolution, (const char*)blob.data(), size);
    OK(miopenGetSolutionSolverId(loaded.get(), &loaded_id));
    OK(miopenGetSolutionSize(loaded.get(), &again));
    CHECK(id == loaded_id && size == again);
    miopenConvAlgorithm_t algorithm;
    OK(miopenGetSolverIdConvAlgorithm(id, &algorithm));
    CHECK(algorithm == miopenConvolutionAlgoDirect || algorithm == miopenConvolutionAlgoWinograd ||
          algorithm == miopenConvolutionAlgoImplicitGEMM);
    // Anything else is refused, damage too.
    miopenSolution_t none;
    blob[size / 2] = (char)(blob[size / 2] ^ 1);
    EXPECT(miopenStatusBadParm, miopenLoadSolution(&none, blob.data(), size));
    blob[size / 2] = (char)(blob[size / 2] ^ 1);
    EXPECT(miopenStatusBadParm, miopenLoadSolution(&none, blob.data(), size - 1));
    EXPECT(miopenStatusBadParm, miopenLoadSolution(&none, "{\"header\":{\"version\":1}}", 24));
    return loaded;
}

static void convolutions(miopenHandle_t handle) {
    const shape_t shapes[] = {{2, 8, 9, 9, 12, 3, 3, 1, 2, 1, 1, 0}, {2, 8, 9, 9, 12, 3, 3, 1, 1, 2, 4, 1}, {1, 5, 7, 5, 10, 1, 1, 0, 1, 1, 1, 0}};
    for (const shape_t& p : shapes)
        for (bool tune : {false, true}) {
            float *x = whole(in_count(&p), 1, 4), *w = whole(filter_count(&p), 2, 3), *y = poisoned(out_count(&p));
            double* expected = oracle_conv(&p, x, w);
            solution_t solution;
            {
                // Descriptors and problem end before the solution is used.
                tensor_t xd = tensor(p, p.n, p.c, p.h, p.w), wd = tensor(p, p.k, p.c / p.groups, p.r, p.s);
                tensor_t yd = tensor(p, p.n, p.k, out_h(&p), out_w(&p));
                convolution_t conv{convolution(&p)};
                problem_t problem = make<problem_t>(miopenCreateConvProblem, conv.get(), miopenProblemDirectionForward);
                OK(miopenSetProblemTensorDescriptor(problem.get(), miopenTensorConvolutionX, xd.get()));
                OK(miopenSetProblemTensorDescriptor(problem.get(), miopenTensorConvolutionW, wd.get()));
                OK(miopenSetProblemTensorDescriptor(problem.get(), miopenTensorConvolutionY, yd.get()));
                std::vector<miopenTensorArgument_t> memory;
                if (tune) memory = {{miopenTensorConvolutionX, nullptr, x}, {miopenTensorConvolutionY, nullptr, y}};
                solution = find(handle, problem.get(), memory, tune);
            }
            float time = -1;
            size_t workspace = 99;
            OK(miopenGetSolutionTime(solution.get(), &time));
            OK(miopenGetSolutionWorkspaceSize(solution.get(), &workspace));
            CHECK(time >= 0);
            solution = saved_and_loaded(std::move(solution));
            std::vector<char> space(workspace);
            for (int run = 0; run < 2; run++) {
                memset(y, 0xff, out_count(&p) * sizeof(float));
                const miopenTensorArgument_t arguments[3] = {
                    {miopenTensorConvolutionX, nullptr, x}, {miopenTensorConvolutionW, nullptr, w}, {miopenTensorConvolutionY, nullptr, y}};
                OK(miopenRunSolution(handle, solution.get(), 3, arguments, workspace ? space.data() : nullptr, workspace));
                compare("solution", y, expected, out_count(&p), tolerance_of(&p));
            }
            free(x), free(w), free(y), free(expected);
        }
}

// A convolution with what the tests below put behind it.
struct example_t {
    const shape_t p = {2, 6, 8, 7, 10, 3, 3, 1, 1, 1, 2, 0};
    const size_t count = out_count(&p);
    const int image = out_h(&p) * out_w(&p);
    tensor_t xd = tensor(p, p.n, p.c, p.h, p.w), wd = tensor(p, p.k, p.c / p.groups, p.r, p.s), bd = tensor(p, 1, p.k, 1, 1);
    tensor_t yd = tensor(p, p.n, p.k, out_h(&p), out_w(&p));
    convolution_t conv{convolution(&p)};
    activation_t act = make<activation_t>(miopenCreateActivationDescriptor);
    float *x = whole(in_count(&p), 1, 4), *w = whole(filter_count(&p), 2, 3), *b = whole((size_t)p.k, 3, 9), *y = poisoned(count);
    float *scale = positive((size_t)p.k, 4), *mean = whole((size_t)p.k, 5, 5), *variance = positive((size_t)p.k, 6);
    double *product = oracle_conv(&p, x, w), *expected = (double*)allocate(count * sizeof(double));

    example_t() { OK(miopenSetActivationDescriptor(act.get(), miopenActivationLEAKYRELU, 0.25, 0, 0)); }
    example_t(const example_t&) = delete;
    ~example_t() { free(x), free(w), free(b), free(y), free(scale), free(mean), free(variance), free(product), free(expected); }

    problem_t convolve() const {
        problem_t problem = make<problem_t>(miopenCreateConvProblem, conv.get(), miopenProblemDirectionForward);
        OK(miopenSetProblemTensorDescriptor(problem.get(), miopenTensorConvolutionX, xd.get()));
        OK(miopenSetProblemTensorDescriptor(problem.get(), miopenTensorConvolutionW, wd.get()));
        return problem;
    }
    problem_t activate() const { return make<problem_t>(miopenCreateActivationProblem, act.get(), miopenProblemDirectionForward); }
    void expect_activated() { oracle_activate(miopenActivationLEAKYRELU, expected, count, 0.25, 0); }
};

static void with_bias_and_activation(miopenHandle_t handle) {
    example_t e;
    problem_t problem = e.convolve(), bias = make<problem_t>(miopenCreateBiasProblem, miopenProblemDirectionInference), last = e.activate();
    OK(miopenSetProblemTensorDescriptor(bias.get(), miopenTensorBias, e.bd.get()));
    OK(miopenSetProblemTensorDescriptor(last.get(), miopenTensorActivationY, e.yd.get()));
    OK(miopenFuseProblems(problem.get(), bias.get()));
    EXPECT(miopenStatusUnsupportedOp, miopenFuseProblems(problem.get(), bias.get()));
    OK(miopenFuseProblems(problem.get(), last.get()));
    bias.reset(), last.reset();
    solution_t solution = saved_and_loaded(find(handle, problem.get(), {}, false));
    std::vector<miopenTensorArgument_t> arguments = {{miopenTensorConvolutionX, nullptr, e.x},
                                                     {miopenTensorConvolutionW, nullptr, e.w},
                                                     {miopenTensorBias, nullptr, e.b},
                                                     {miopenTensorActivationY, nullptr, e.y}};
    OK(miopenRunSolution(handle, solution.get(), 4, arguments.data(), nullptr, 0));
    memcpy(e.expected, e.product, e.count * sizeof(double));
    oracle_bias(&e.p, e.expected, e.b);
    e.expect_activated();
    compare("convolution, bias, activation", e.y, e.expected, e.count, ROUNDED);

    // Each argument is needed, and an output that overlaps an operand is not run.
    for (size_t missing = 0; missing < arguments.size(); missing++) {
        std::vector<miopenTensorArgument_t> fewer = arguments;
        fewer[missing].buffer = nullptr;
        memset(e.y, 0x5a, e.count * sizeof(float));
        EXPECT(miopenStatusBadParm, miopenRunSolution(handle, solution.get(), 4, fewer.data(), nullptr, 0));
        fewer.erase(fewer.begin() + (long)missing);
        EXPECT(miopenStatusBadParm, miopenRunSolution(handle, solution.get(), 3, fewer.data(), nullptr, 0));
        for (size_t i = 0; i < e.count; i++) CHECK(!memcmp(e.y + i, "ZZZZ", 4));
    }
    arguments[3].buffer = e.w;
    EXPECT(miopenStatusBadParm, miopenRunSolution(handle, solution.get(), 4, arguments.data(), nullptr, 0));
    arguments[3].buffer = e.y;

    // Another batch in the place of the problem's, in all descriptors or in none.
    tensor_t xd = tensor(e.p, 1, e.p.c, e.p.h, e.p.w), yd = tensor(e.p, 1, e.p.k, out_h(&e.p), out_w(&e.p));
    miopenTensorDescriptor_t x = xd.get(), y = yd.get();
    arguments[0].descriptor = &x;
    EXPECT(miopenStatusBadParm, miopenRunSolution(handle, solution.get(), 4, arguments.data(), nullptr, 0));
    arguments[3].descriptor = &y;
    memset(e.y, 0xff, e.count * sizeof(float));
    OK(miopenRunSolution(handle, solution.get(), 4, arguments.data(), nullptr, 0));
    compare("half the batch", e.y, e.expected, e.count / 2, ROUNDED);
    CHECK(e.y[e.count / 2] != e.y[e.count / 2]);
}

static void with_batch_norm_and_activation(miopenHandle_t handle) {
    example_t e;
    problem_t problem = e.convolve(), last = e.activate();
    problem_t norm = make<problem_t>(miopenCreateBatchnormProblem, miopenBNSpatial, false, miopenProblemDirectionInference);
    OK(miopenSetProblemTensorDescriptor(norm.get(), miopenTensorBatchnormScale, e.bd.get()));
    OK(miopenFuseProblems(norm.get(), last.get()));
    OK(miopenFuseProblems(problem.get(), norm.get()));
    solution_t solution = saved_and_loaded(find(handle, problem.get(), {}, false));
    double epsilon = 1e-3;
    const miopenTensorArgument_t arguments[] = {{miopenTensorConvolutionX, nullptr, e.x},
                                                {miopenTensorConvolutionW, nullptr, e.w},
                                                {miopenTensorBatchnormScale, nullptr, e.scale},
                                                {miopenTensorBatchnormBias, nullptr, e.b},
                                                {miopenTensorBatchnormEstimatedMean, nullptr, e.mean},
                                                {miopenTensorBatchnormEstimatedVariance, nullptr, e.variance},
                                                {miopenTensorActivationY, nullptr, e.y},
                                                {miopenScalarBatchnormEpsilon, nullptr, &epsilon}};
    EXPECT(miopenStatusBadParm, miopenRunSolution(handle, solution.get(), 7, arguments, nullptr, 0));
    CHECK(strstr(fuseplanGetLastErrorString(), "miopenScalarBatchnormEpsilon"));
    OK(miopenRunSolution(handle, solution.get(), 8, arguments, nullptr, 0));
    for (size_t i = 0; i < e.count; i++) {
        int c = (int)i / e.image % e.p.k;
        e.expected[i] = e.scale[c] * (e.product[i] - e.mean[c]) / sqrt(e.variance[c] + epsilon) + e.b[c];
    }
    e.expect_activated();
    compare("convolution, batch-norm, activation", e.y, e.expected, e.count, 1e-5);
}

static void alone(miopenHandle_t handle) {
    example_t e;
    enum { C = 10 };
    float *z = whole(e.count, 9, 7), *running = whole(C, 10, 3);
    // Training: the search leaves running statistics alone, the run changes them.
    problem_t training = make<problem_t>(miopenCreateBatchnormProblem, miopenBNSpatial, true, miopenProblemDirectionForward);
    OK(miopenSetProblemTensorDescriptor(training.get(), miopenTensorBatchnormX, e.yd.get()));
    std::vector<float> was(running, running + C), spread(C, 1.0f), saved(C);
    double epsilon = 1e-5, factor = 0.5, means[C] = {}, next[C];
    for (size_t i = 0; i < e.count; i++) means[(int)i / e.image % C] += z[i] / (double)(e.p.n * e.image);
    for (int c = 0; c < C; c++) next[c] = 0.5 * was[(size_t)c] + 0.5 * means[c];
    const std::vector<miopenTensorArgument_t> arguments = {{miopenTensorBatchnormX, nullptr, z},
                                                           {miopenTensorBatchnormY, nullptr, e.y},
                                                           {miopenTensorBatchnormScale, nullptr, e.scale},
                                                           {miopenTensorBatchnormBias, nullptr, e.b},
                                                           {miopenTensorBatchnormRunningMean, nullptr, running},
                                                           {miopenTensorBatchnormRunningVariance, nullptr, spread.data()},
                                                           {miopenTensorBatchnormSavedMean, nullptr, saved.data()},
                                                           {miopenScalarBatchnormEpsilon, nullptr, &epsilon},
                                                           {miopenScalarBatchnormExpAvgFactor, nullptr, &factor}};
    const std::vector<miopenTensorArgument_t> memory(arguments.begin(), arguments.begin() + 7);
    solution_t solution = saved_and_loaded(find(handle, training.get(), memory, false));
    CHECK(std::equal(was.begin(), was.end(), running) && spread[0] == 1.0f);
    OK(miopenRunSolution(handle, solution.get(), arguments.size(), arguments.data(), nullptr, 0));
    compare("running mean", running, next, C, 1e-6);
    compare("saved mean", saved.data(), means, C, 1e-6);

    // An activation in place.
    problem_t activation = e.activate();
    OK(miopenSetProblemTensorDescriptor(activation.get(), miopenTensorActivationX, e.yd.get()));
    solution = find(handle, activation.get(), {}, false);
    for (size_t i = 0; i < e.count; i++) e.expected[i] = z[i];
    e.expect_activated();
    const miopenTensorArgument_t in_place[] = {{miopenTensorActivationX, nullptr, z}, {miopenTensorActivationY, nullptr, z}};
    OK(miopenRunSolution(handle, solution.get(), 2, in_place, nullptr, 0));
    compare("an activation", z, e.expected, e.count, 0);
    free(z), free(running);
}

// What does not fit is refused where it is seen first.
static void refused(miopenHandle_t handle) {
    example_t e;
    miopenProblem_t none;
    miopenSolution_t solution;
    size_t found = 9;
    tensor_t wrong = tensor(e.p, e.p.n, e.p.k, out_h(&e.p) + 1, out_w(&e.p));
    EXPECT(miopenStatusNotImplemented, miopenCreateConvProblem(&none, e.conv.get(), miopenProblemDirectionBackward));
    EXPECT(miopenStatusNotImplemented, miopenCreateConvProblem(&none, e.conv.get(), miopenProblemDirectionBackwardWeights));
    EXPECT(miopenStatusBadParm, miopenCreateConvProblem(&none, e.conv.get(), (miopenProblemDirection_t)3));
    EXPECT(miopenStatusNotImplemented, miopenCreateMhaProblem(&none, nullptr, miopenProblemDirectionForward));
    problem_t bare = make<problem_t>(miopenCreateConvProblem, e.conv.get(), miopenProblemDirectionForward);
    EXPECT(miopenStatusBadParm, miopenFindSolutions(handle, bare.get(), nullptr, &solution, &found, 1));
    EXPECT(miopenStatusBadParm, miopenSetProblemTensorDescriptor(bare.get(), miopenTensorActivationX, e.xd.get()));
    problem_t odd = e.convolve();
    OK(miopenSetProblemTensorDescriptor(odd.get(), miopenTensorConvolutionY, wrong.get()));
    EXPECT(miopenStatusBadParm, miopenFindSolutions(handle, odd.get(), nullptr, &solution, &found, 1));
    CHECK(strstr(fuseplanGetLastErrorString(), "miopenTensorConvolutionY"));
    problem_t one = e.convolve(), two = e.convolve(), backwards = e.activate();
    EXPECT(miopenStatusUnsupportedOp, miopenFuseProblems(one.get(), two.get()));
    EXPECT(miopenStatusUnsupportedOp, miopenFuseProblems(one.get(), one.get()));
    // Activations fuse with activations, but not without an end.
    problem_t doubled = e.activate();
    for (int operators = 1; operators < 64; operators *= 2) OK(miopenFuseProblems(doubled.get(), doubled.get()));
    EXPECT(miopenStatusUnsupportedOp, miopenFuseProblems(doubled.get(), doubled.get()));
    OK(miopenSetProblemTensorDescriptor(backwards.get(), miopenTensorActivationX, e.xd.get()));
    OK(miopenFuseProblems(backwards.get(), one.get()));
    EXPECT(miopenStatusUnsupportedOp, miopenFindSolutions(handle, backwards.get(), nullptr, &solution, &found, 1));
    EXPECT(miopenStatusBadParm, miopenFindSolutions(handle, one.get(), nullptr, &solution, &found, 0));
    CHECK(found == 9);
    options_t options = make<options_t>(miopenCreateFindOptions);
    EXPECT(miopenStatusBadParm, miopenSetFindOptionTuning(options.get(), 2));
    EXPECT(miopenStatusBadParm, miopenSetFindOptionResultsOrder(options.get(), (miopenFindResultsOrder_t)2));
    EXPECT(miopenStatusBadParm, miopenSetFindOptionAttachBinaries(options.get(), 2));
}

int main() {
    miopenHandle_t handle;
    OK(miopenCreate(&handle));
    convolutions(handle);
    with_bias_and_activation(handle);
    with_batch_norm_and_activation(handle);
    alone(handle);
    refused(handle);
    OK(miopenDestroy(handle));
}
