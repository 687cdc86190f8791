// The fused multiply-adds that this machine can do: independent chains of vector FMAs and nothing else.
// Speaks the protocol of onednn_server.cpp; `run` answers with the time of 10^9 floating-point operations.
//
// Compile with -O3 -march=native -ffp-contract=fast. Takes the number of threads as its argument.

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

// Vector registers, and independent chains: more than latency times throughput, fewer than registers.
#if defined(__AVX512F__)
constexpr int vector_bytes = 64, chains = 20;
#elif defined(__AVX__)
constexpr int vector_bytes = 32, chains = 12;
#else
constexpr int vector_bytes = 16, chains = 12;
#endif
#if defined(__x86_64__)
#define VECTOR_REGISTER "+v"
#else
#define VECTOR_REGISTER "+w"
#endif
typedef float vector __attribute__((vector_size(vector_bytes)));
constexpr int lanes = vector_bytes / 4;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Floating-point operations a second over `seconds`.
double measure(double seconds) {
    vector sums[chains] = {}, factor, step;
    for (int i = 0; i < lanes; i++) factor[i] = 0.5f, step[i] = 1.0f;
    const double start = now();
    double elapsed = 0;
    long rounds = 0;
    do {
        for (int i = 0; i < 4096; i++) {
            // The assembler statements keep the compiler from leaving anything out.
#pragma GCC unroll 20
            for (int c = 0; c < chains; c++) sums[c] = sums[c] * factor + step;
#pragma GCC unroll 20
            for (int c = 0; c < chains; c++) asm volatile("" : VECTOR_REGISTER(sums[c]));
        }
        rounds += 4096;
        elapsed = now() - start;
    } while (elapsed < seconds);
    return 2.0 * lanes * chains * double(rounds) / elapsed;
}

} // namespace

int main(int count, char **arguments) {
    const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string command;
        double seconds = 0;
        words >> command >> seconds;
        if (command == "setup") {
            std::cout << "ready " << vector_bytes * 8 << "-bit" << std::endl;
        } else if (command == "run") {
            std::vector<double> rates(size_t(threads), 0.0);
            std::vector<std::thread> others;
            for (int t = 1; t < threads; t++) others.emplace_back([&, t] { rates[size_t(t)] = measure(seconds); });
            rates[0] = measure(seconds);
            for (auto &other : others) other.join();
            double rate = 0;
            for (double r : rates) rate += r;
            std::cout << "time " << 1e9 / rate << " 1" << std::endl;
        } else {
            std::cout << "error no " << command << " here" << std::endl;
        }
    }
}
