// fuseplan.hpp: what its classes own, what they throw, and that they compute what was asked for.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

#include <fuseplan.hpp>

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            std::printf("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);     \
            std::exit(1);                                                           \
        }                                                                           \
    } while (0)

template <typename T>
constexpr bool moves_only = std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> &&
                            !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>;
static_assert(moves_only<fuseplan::Handle> && moves_only<fuseplan::Tensor> && moves_only<fuseplan::Plan>);
static_assert(moves_only<fuseplan::Compiled> && moves_only<fuseplan::Binary> && moves_only<fuseplan::Args>);

// The error that a call throws.
template <typename Call>
static fuseplan::Error thrown(Call call) {
    try {
        call();
    } catch (const fuseplan::Error& error) {
        return error;
    }
    std::printf("nothing was thrown\n");
    std::exit(1);
}

static void moves() {
    fuseplan::Tensor a(FUSEPLAN_F16, {1, 2, 3, 4}, FUSEPLAN_CHANNELS_LAST);
    const fuseplan_tensor_t raw = a.get();
    fuseplan::Tensor b(std::move(a));
    CHECK(b.get() == raw && a.get() == nullptr);
    fuseplan::Tensor c(FUSEPLAN_F32, {1, 1, 1, 1});
    c = std::move(b);
    CHECK(c.get() == raw && c.data_type() == FUSEPLAN_F16 && c.bytes() == 48);
    CHECK((c.lens() == std::vector<std::size_t>{1, 2, 3, 4}) && (c.strides() == std::vector<std::size_t>{24, 1, 8, 2}));
    const auto error = thrown([&] { a.bytes(); });
    CHECK(error.status() == FUSEPLAN_INVALID_ARGUMENT && std::strstr(error.what(), "the tensor descriptor is NULL"));
}

static void refusals(const fuseplan::Handle& handle) {
    const fuseplan::Tensor x(FUSEPLAN_F32, {1, 8, 6, 6}), w(FUSEPLAN_F32, {8, 8, 3, 3});
    fuseplan::Plan plan(handle, x);
    CHECK(plan.convolution(w) == 0 && plan.bias(FUSEPLAN_F32) == 1);
    const auto second = thrown([&] { plan.convolution(w); });
    CHECK(second.status() == FUSEPLAN_UNSUPPORTED && std::strstr(second.what(), "the plan already has a convolution"));
    CHECK(plan.explain(handle).find("solver     cpu.") != std::string::npos);
    CHECK(handle.supported().find("cpu.reference.v1") != std::string::npos);

    fuseplan::Convolution short_list;
    short_list.pads_before = {1};
    bool refused           = false;
    try {
        fuseplan::Plan(handle, x).convolution(w, short_list);
    } catch (const std::invalid_argument&) {
        refused = true;
    }
    CHECK(refused);
    CHECK(thrown([&] { fuseplan::Handle nowhere("tpu"); }).status() == FUSEPLAN_UNAVAILABLE);
    CHECK(thrown([&] { fuseplan::Args(plan).operand(1, "weights", nullptr); }).status() == FUSEPLAN_INVALID_ARGUMENT);
}

static void executes(const fuseplan::Handle& handle) {
    const fuseplan::Tensor x(FUSEPLAN_F32, {1, 16, 8, 8}), w(FUSEPLAN_F32, {16, 16, 3, 3});
    fuseplan::Convolution half;
    half.strides = {2, 2}, half.pads_before = {1, 1}, half.pads_after = {0, 0};
    fuseplan::Plan plan(handle, x);
    const auto conv = plan.convolution(w, half);
    const auto norm = plan.batch_norm(FUSEPLAN_BATCH_NORM_SPATIAL);
    const auto sum  = plan.residual();
    plan.activation(FUSEPLAN_CLIPPED_RELU, 100);
    CHECK((plan.output().lens() == std::vector<std::size_t>{1, 16, 4, 4}));

    const std::vector<float> input(16 * 64, 1), weights(16 * 16 * 9, 0.5f), ones(16, 1), zeros(16, 0);
    std::vector<float> residual(16 * 16), output(16 * 16, -1);
    for (std::size_t i = 0; i < residual.size(); i++) residual[i] = static_cast<float>(i % 5) * 20 - 40;
    fuseplan::Args args(plan);
    args.constant(conv, "weights", weights.data()).operand(sum, "bias", residual.data());
    args.operand(norm, "scale", ones.data()).operand(norm, "bias", zeros.data());
    args.operand(norm, "mean", zeros.data()).operand(norm, "variance", ones.data()).scalar(norm, "epsilon", 0);

    const fuseplan::Compiled compiled = plan.compile(handle, FUSEPLAN_ALLOW_TF32);
    const fuseplan::Binary binary     = plan.compile_binary(handle);
    const fuseplan::Compiled loaded   = plan.load(handle, binary.data(), binary.size());
    const std::vector<fuseplan::Compiled> both = fuseplan::Plan::compile_all({&plan, &plan}, handle);
    CHECK(both.size() == 2 && fuseplan::Plan::compile_all({}, handle).empty());
    for (const fuseplan::Compiled* one : {&compiled, &loaded, &both[0], &both[1]}) {
        CHECK(one->workspace() == 0);
        one->execute(handle, args, input.data(), output.data());
        for (std::size_t i = 0; i < output.size(); i++) {
            // At the upper and the left edge a row or column of the filter lies on padding.
            const int rows = i / 4 % 4 == 0 ? 2 : 3, columns = i % 4 == 0 ? 2 : 3;
            const float value = 0.5f * 16 * static_cast<float>(rows * columns) + residual[i];
            CHECK(output[i] == (value < 0 ? 0 : value > 100 ? 100 : value));
        }
    }
}

// Into blocks of channels, and out of them.
static void layouts(const fuseplan::Handle& handle) {
    const fuseplan::Tensor x(FUSEPLAN_F32, {1, 1, 1, 3}), w(FUSEPLAN_F32, {4, 1, 1, 1}), v(FUSEPLAN_F32, {2, 4, 1, 1});
    fuseplan::Convolution to_blocks, out_of_them;
    to_blocks.output   = FUSEPLAN_BLOCKS_OF_4;
    out_of_them.output = FUSEPLAN_CHANNELS_FIRST;
    fuseplan::Plan first(handle, x);
    first.convolution(w, to_blocks);
    const fuseplan::Tensor between = first.output();
    CHECK(between.layout() == FUSEPLAN_BLOCKS_OF_4 && between.bytes() == 48);
    const fuseplan::Tensor two(FUSEPLAN_F16, {1, 8, 1, 3}, FUSEPLAN_BLOCKS_OF_4);
    CHECK(two.layout() == FUSEPLAN_BLOCKS_OF_4);
    CHECK(thrown([&] { two.strides(); }).status() == FUSEPLAN_INVALID_ARGUMENT);
    CHECK(thrown([&] { fuseplan::Tensor(FUSEPLAN_F32, {2, 3}, {9, 1}).layout(); }).status() == FUSEPLAN_INVALID_ARGUMENT);
    fuseplan::Plan second(handle, between);
    second.convolution(v, out_of_them);
    CHECK(second.output().layout() == FUSEPLAN_CHANNELS_FIRST);

    const float input[] = {1, 2, 3}, each[] = {1, 10, 100, 1000}, sums[] = {1, 1, 1, 1, 0, 0, 2, 0};
    const float blocks[] = {1, 10, 100, 1000, 2, 20, 200, 2000, 3, 30, 300, 3000};
    const float expected[] = {1111, 2222, 3333, 200, 400, 600};
    float inside[12] = {}, output[6] = {};
    fuseplan::Args of_first(first), of_second(second);
    of_first.operand(0, "weights", each), of_second.operand(0, "weights", sums);
    first.compile(handle).execute(handle, of_first, input, inside);
    CHECK(std::memcmp(inside, blocks, sizeof inside) == 0);
    second.compile(handle).execute(handle, of_second, inside, output);
    CHECK(std::memcmp(output, expected, sizeof output) == 0);

    fuseplan::Plan relu(handle, between);
    relu.activation(FUSEPLAN_RELU);
    const std::vector<fuseplan::LayoutTime> times = relu.fastest_layouts(handle);
    CHECK(times.size() == 3 && times[0].seconds > 0 && times[0].seconds <= times[2].seconds);
}

int main() {
    moves();
    const fuseplan::Handle handle("cpu");
    refusals(handle);
    executes(handle);
    layouts(handle);
    executes(fuseplan::Handle::cpu(2));
    return 0;
}
