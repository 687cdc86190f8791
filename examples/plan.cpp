// Convolution + bias + ReLU as one kernel, from C++; plan.c is the same in C.
//
//     capi/install.sh --prefix /opt/fuseplan
//     c++ -std=c++17 examples/plan.cpp -o plan $(PKG_CONFIG_PATH=/opt/fuseplan/lib/pkgconfig pkg-config --cflags --libs fuseplan)
//     LD_LIBRARY_PATH=/opt/fuseplan/lib ./plan
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <fuseplan.hpp>

namespace {

constexpr int N = 4, C = 32, H = 16, W = 16, K = 8, TAPS = 3;

// Small whole numbers, so that a sum with a wrong product is off by 1 or more; f32's rounding moves it by less than 0.01.
std::vector<float> numbers(std::size_t count, std::size_t step) {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; i++) data[i] = static_cast<float>(static_cast<int>(i * step % 7) - 3);
    return data;
}

int run() {
    const fuseplan::Handle handle("cpu");
    const fuseplan::Tensor x(FUSEPLAN_F32, {N, C, H, W}), w(FUSEPLAN_F32, {K, C, TAPS, TAPS});

    fuseplan::Convolution padded;
    padded.pads_before = {1, 1};
    fuseplan::Plan plan(handle, x);
    const auto conv = plan.convolution(w, padded);
    const auto bias = plan.bias(FUSEPLAN_F32);
    plan.activation(FUSEPLAN_RELU);
    const fuseplan::Compiled compiled = plan.compile(handle);

    const auto input = numbers(N * C * H * W, 3), weights = numbers(K * C * TAPS * TAPS, 5), shift = numbers(K, 1);
    std::vector<float> output(plan.output().bytes() / sizeof(float));
    fuseplan::Args args(plan);
    args.constant(conv, "weights", weights.data()).constant(bias, "bias", shift.data());
    compiled.execute(handle, args, input.data(), output.data());

    for (int i = 0; i < N * K * H * W; i++) {
        const int n = i / (K * H * W), k = i / (H * W) % K, row = i / W % H, column = i % W;
        double sum = shift[k];
        for (int c = 0; c < C; c++)
            for (int r = row - 1; r <= row + 1; r++)
                for (int s = column - 1; s <= column + 1; s++)
                    if (r >= 0 && r < H && s >= 0 && s < W)
                        sum += static_cast<double>(input[((n * C + c) * H + r) * W + s]) *
                               weights[((k * C + c) * TAPS + r - row + 1) * TAPS + s - column + 1];
        const double expected = sum > 0 ? sum : 0;
        if (!(std::fabs(output[i] - expected) <= 0.01)) {
            std::fprintf(stderr, "element %d is %g, plain loops give %g\n", i, output[i], expected);
            return EXIT_FAILURE;
        }
    }
    std::printf("%d outputs, as plain loops have them\n", N * K * H * W);
    return EXIT_SUCCESS;
}

} // namespace

int main() {
    try {
        return run();
    } catch (const fuseplan::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return EXIT_FAILURE;
    }
}
