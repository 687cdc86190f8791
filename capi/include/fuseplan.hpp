/*
 * fuseplan.h as C++17 classes: handles that are moved and destroy themselves, and exceptions with the reason of what failed.
 * Nothing but this header and libfuseplan is needed.
 *
 * A call that fails throws fuseplan::Error. Objects hold one handle of the C library each; which threads may use them is
 * said in <fuseplan.h>. Executing allocates nothing here, nor below after the first executions.
 */
#ifndef FUSEPLAN_HPP
#define FUSEPLAN_HPP

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <fuseplan.h>

namespace fuseplan {

/* A call that failed; what() is fuseplan_last_error()'s text. */
class Error : public std::runtime_error {
public:
    explicit Error(fuseplan_status_t status) : std::runtime_error(fuseplan_last_error()), status_(status) {}

    fuseplan_status_t status() const noexcept { return status_; }

private:
    fuseplan_status_t status_;
};

/* Throws unless the status is a success's. */
inline void check(fuseplan_status_t status) {
    if (status != FUSEPLAN_SUCCESS) throw Error(status);
}

/* A handle of the C library that ends with this object. One that was moved from has none. */
template <typename T, fuseplan_status_t (*Destroy)(T)>
class Object {
public:
    Object(const Object&)            = delete;
    Object& operator=(const Object&) = delete;
    Object(Object&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}
    Object& operator=(Object&& other) noexcept {
        std::swap(raw_, other.raw_);
        return *this;
    }
    ~Object() { Destroy(raw_); }

    /* For calls of the C library. */
    T get() const noexcept { return raw_; }

protected:
    explicit Object(T raw = nullptr) noexcept : raw_(raw) {}

    T raw_;
};

namespace detail {
/* The text of a C function that takes a buffer and its size. */
template <typename Write>
std::string text(Write write) {
    std::size_t size = 0;
    check(write(nullptr, &size));
    std::string text(size, '\0');
    check(write(&text[0], &size));
    text.resize(size - 1);
    return text;
}
} // namespace detail

/* A device and the stream that work is ordered in. */
class Handle : public Object<fuseplan_handle_t, fuseplan_handle_destroy> {
public:
    /* The best device of this machine, or the one that FUSEPLAN_BACKEND names. */
    Handle() { check(fuseplan_handle_create(&raw_, nullptr, FUSEPLAN_CURRENT_DEVICE)); }

    /* A device of the backend "cpu", "cuda" or "rocm". */
    explicit Handle(const char* backend, int device = FUSEPLAN_CURRENT_DEVICE) {
        check(fuseplan_handle_create(&raw_, backend, device));
    }

    /* The CPU with so many threads. */
    static Handle cpu(std::size_t threads) {
        fuseplan_handle_t raw = nullptr;
        check(fuseplan_handle_create_cpu(&raw, threads));
        return Handle(raw);
    }

    /* The CPU on the caller's threads. */
    static Handle parallel_for(std::size_t threads, fuseplan_parallel_for_t loop, void* context) {
        fuseplan_handle_t raw = nullptr;
        check(fuseplan_handle_create_parallel_for(&raw, threads, loop, context));
        return Handle(raw);
    }

    void set_stream(void* stream) { check(fuseplan_handle_set_stream(raw_, stream)); }

    void synchronize() const { check(fuseplan_handle_synchronize(raw_)); }

    std::string supported() const {
        return detail::text([this](char* text, std::size_t* size) { return fuseplan_handle_supported(raw_, text, size); });
    }

private:
    explicit Handle(fuseplan_handle_t raw) noexcept : Object(raw) {}
};

/* Data type, lengths and strides. */
class Tensor : public Object<fuseplan_tensor_t, fuseplan_tensor_destroy> {
public:
    /* A packed tensor with lengths N, C, (D,) H, W. */
    Tensor(fuseplan_data_type_t data_type,
           const std::vector<std::size_t>& lens,
           fuseplan_layout_t layout = FUSEPLAN_CHANNELS_FIRST) {
        check(fuseplan_tensor_create(&raw_, data_type, layout, lens.size(), lens.data()));
    }

    /* A tensor with any strides; one for each length. */
    Tensor(fuseplan_data_type_t data_type,
           const std::vector<std::size_t>& lens,
           const std::vector<std::size_t>& strides) {
        if (lens.size() != strides.size()) throw std::invalid_argument("a tensor has as many strides as lengths");
        check(fuseplan_tensor_create_strided(&raw_, data_type, lens.size(), lens.data(), strides.data()));
    }

    fuseplan_data_type_t data_type() const {
        fuseplan_data_type_t type{};
        check(fuseplan_tensor_get(raw_, &type, nullptr, nullptr, nullptr));
        return type;
    }

    std::vector<std::size_t> lens() const {
        std::size_t rank = 0, lens[FUSEPLAN_MAX_RANK] = {};
        check(fuseplan_tensor_get(raw_, nullptr, &rank, lens, nullptr));
        return std::vector<std::size_t>(lens, lens + rank);
    }

    std::vector<std::size_t> strides() const {
        std::size_t rank = 0, strides[FUSEPLAN_MAX_RANK] = {};
        check(fuseplan_tensor_get(raw_, nullptr, &rank, nullptr, strides));
        return std::vector<std::size_t>(strides, strides + rank);
    }

    /* The layout of a packed tensor. One in blocks has no strides. */
    fuseplan_layout_t layout() const {
        fuseplan_layout_t layout{};
        check(fuseplan_tensor_layout(raw_, &layout));
        return layout;
    }

    /* Bytes of memory. */
    std::size_t bytes() const {
        std::size_t bytes = 0;
        check(fuseplan_tensor_bytes(raw_, &bytes));
        return bytes;
    }

private:
    friend class Plan;
    explicit Tensor(fuseplan_tensor_t raw) noexcept : Object(raw) {}
};

/* What a convolution is besides its weights. A list that is left empty has the default: strides and dilations of 1, padding
 * of 0, and behind as before. An output has a layout, or strides for all dimensions, or else lies as the input does. */
struct Convolution {
    std::vector<std::size_t> strides        = {};
    std::vector<std::size_t> dilations      = {};
    std::vector<std::size_t> pads_before    = {};
    std::vector<std::size_t> pads_after     = {};
    std::size_t groups                      = 1;
    std::optional<fuseplan_layout_t> output = {};
    std::vector<std::size_t> output_strides = {};
};

/* A layout of a plan's tensors, and how long the fastest solver takes with it. */
struct LayoutTime {
    fuseplan_layout_t layout;
    double seconds;
};

class Args;

/* A plan compiled for one device. */
class Compiled : public Object<fuseplan_compiled_t, fuseplan_compiled_destroy> {
public:
    /* Bytes of workspace that an execution needs. */
    std::size_t workspace() const {
        std::size_t bytes = 0;
        check(fuseplan_compiled_workspace(raw_, &bytes));
        return bytes;
    }

    /* Runs, or launches into the handle's stream. */
    void execute(const Handle& handle,
                 const Args& args,
                 const void* input,
                 void* output,
                 void* workspace             = nullptr,
                 std::size_t workspace_bytes = 0) const;

private:
    friend class Plan;
    explicit Compiled(fuseplan_compiled_t raw) noexcept : Object(raw) {}
};

/* A compiled plan's bytes. */
class Binary : public Object<fuseplan_binary_t, fuseplan_binary_destroy> {
public:
    /* The first byte; good as long as this object. */
    const void* data() const { return bytes().first; }

    std::size_t size() const { return bytes().second; }

private:
    friend class Plan;
    explicit Binary(fuseplan_binary_t raw) noexcept : Object(raw) {}

    std::pair<const void*, std::size_t> bytes() const {
        std::pair<const void*, std::size_t> bytes;
        check(fuseplan_binary_data(raw_, &bytes.first, &bytes.second));
        return bytes;
    }
};

/* A chain of operators. Functions that append return the operator's number. */
class Plan : public Object<fuseplan_plan_t, fuseplan_plan_destroy> {
public:
    /* For any device. */
    explicit Plan(const Tensor& input) { check(fuseplan_plan_create(&raw_, nullptr, input.get())); }

    /* For the handle's device. */
    Plan(const Handle& handle, const Tensor& input) { check(fuseplan_plan_create(&raw_, handle.get(), input.get())); }

    std::size_t convolution(const Tensor& weights, const Convolution& conv = {}) {
        const std::size_t dims         = spatial_dims();
        const std::size_t* strides     = list(conv.strides, dims);
        const std::size_t* dilations   = list(conv.dilations, dims);
        const std::size_t* pads_before = list(conv.pads_before, dims);
        const std::size_t* pads_after  = list(conv.pads_after, dims);
        std::size_t op                 = 0;
        if (conv.output && !conv.output_strides.empty())
            throw std::invalid_argument("an output has a layout or strides, not both");
        if (!conv.output_strides.empty())
            check(fuseplan_plan_append_convolution_into(raw_, weights.get(), strides, dilations, pads_before, pads_after,
                                                        conv.groups, list(conv.output_strides, dims + 2), &op));
        else if (conv.output)
            check(fuseplan_plan_append_convolution_to(raw_, weights.get(), strides, dilations, pads_before, pads_after,
                                                      conv.groups, *conv.output, &op));
        else
            check(fuseplan_plan_append_convolution(raw_, weights.get(), strides, dilations, pads_before, pads_after,
                                                   conv.groups, &op));
        return op;
    }

    /* One value for each channel. */
    std::size_t bias(fuseplan_data_type_t data_type) {
        std::size_t op = 0;
        check(fuseplan_plan_append_bias(raw_, data_type, &op));
        return op;
    }

    /* One slope for each channel, or one. */
    std::size_t prelu(fuseplan_data_type_t data_type, std::size_t slopes) {
        std::size_t op = 0;
        check(fuseplan_plan_append_prelu(raw_, data_type, slopes, &op));
        return op;
    }

    /* A tensor like the plan's so far. */
    std::size_t residual() {
        std::size_t op = 0;
        check(fuseplan_plan_append_residual(raw_, nullptr, &op));
        return op;
    }

    std::size_t residual(const Tensor& tensor) {
        std::size_t op = 0;
        check(fuseplan_plan_append_residual(raw_, tensor.get(), &op));
        return op;
    }

    std::size_t batch_norm(fuseplan_batch_norm_mode_t mode, fuseplan_data_type_t data_type = FUSEPLAN_F32) {
        std::size_t op = 0;
        check(fuseplan_plan_append_batch_norm(raw_, mode, data_type, &op));
        return op;
    }

    std::size_t activation(fuseplan_activation_t activation, double alpha = 0, double beta = 0, double gamma = 0) {
        std::size_t op = 0;
        check(fuseplan_plan_append_activation(raw_, activation, alpha, beta, gamma, &op));
        return op;
    }

    std::size_t batch_norm_training(fuseplan_batch_norm_mode_t mode, bool running) {
        std::size_t op = 0;
        check(fuseplan_plan_append_batch_norm_training(raw_, mode, running, &op));
        return op;
    }

    std::size_t batch_norm_backward(fuseplan_batch_norm_mode_t mode) {
        std::size_t op = 0;
        check(fuseplan_plan_append_batch_norm_backward(raw_, mode, &op));
        return op;
    }

    std::size_t activation_backward(fuseplan_activation_t activation, double alpha = 0, double beta = 0, double gamma = 0) {
        std::size_t op = 0;
        check(fuseplan_plan_append_activation_backward(raw_, activation, alpha, beta, gamma, &op));
        return op;
    }

    /* What an execution writes. */
    Tensor output() const {
        fuseplan_tensor_t raw = nullptr;
        check(fuseplan_plan_output(raw_, &raw));
        return Tensor(raw);
    }

    /* `options` are fuseplan_compile_options_t's, added up. */
    Compiled compile(const Handle& handle, unsigned options = 0) const {
        fuseplan_compiled_t raw = nullptr;
        check(fuseplan_plan_compile(raw_, handle.get(), options, &raw));
        return Compiled(raw);
    }

    /* Compiles plans several at a time; what they give is in their order. */
    static std::vector<Compiled> compile_all(const std::vector<const Plan*>& plans,
                                             const Handle& handle,
                                             unsigned options = 0) {
        if (plans.empty()) return {};
        std::vector<fuseplan_plan_t> of;
        for (const Plan* plan : plans) of.push_back(plan->get());
        // Room for all before there is anything to lose.
        std::vector<fuseplan_compiled_t> raw(of.size());
        std::vector<Compiled> compiled;
        compiled.reserve(of.size());
        check(fuseplan_plans_compile(of.data(), of.size(), handle.get(), options, raw.data()));
        for (fuseplan_compiled_t one : raw) compiled.push_back(Compiled(one));
        return compiled;
    }

    /* The layouts that input, output and residuals could all have, the fastest first. */
    std::vector<LayoutTime> fastest_layouts(const Handle& handle, unsigned options = 0) const {
        std::size_t count                               = 0;
        fuseplan_layout_t layouts[FUSEPLAN_MAX_LAYOUTS] = {};
        double seconds[FUSEPLAN_MAX_LAYOUTS]            = {};
        check(fuseplan_plan_fastest_layouts(
            raw_, handle.get(), options, FUSEPLAN_MAX_LAYOUTS, &count, layouts, seconds));
        std::vector<LayoutTime> times;
        for (std::size_t i = 0; i < count && i < FUSEPLAN_MAX_LAYOUTS; i++) times.push_back({layouts[i], seconds[i]});
        return times;
    }

    std::string explain(const Handle& handle, unsigned options = 0) const {
        return detail::text([&](char* text, std::size_t* size) {
            return fuseplan_plan_explain(raw_, handle.get(), options, text, size);
        });
    }

    Binary compile_binary(const Handle& handle, unsigned options = 0) const {
        fuseplan_binary_t raw = nullptr;
        check(fuseplan_plan_compile_binary(raw_, handle.get(), options, &raw));
        return Binary(raw);
    }

    /* What compile_binary() of an equal plan gave. The bytes are run: load what comes from where you trust. */
    Compiled load(const Handle& handle, const void* data, std::size_t size, unsigned options = 0) const {
        fuseplan_compiled_t raw = nullptr;
        check(fuseplan_plan_load(raw_, handle.get(), options, data, size, &raw));
        return Compiled(raw);
    }

private:
    /* How many numbers the C library reads of each list. */
    std::size_t spatial_dims() const { return output().lens().size() - 2; }

    static const std::size_t* list(const std::vector<std::size_t>& numbers, std::size_t dims) {
        if (!numbers.empty() && numbers.size() != dims)
            throw std::invalid_argument("a list of a convolution has one number for each dimension that it is of, or none");
        return numbers.empty() ? nullptr : numbers.data();
    }
};

/* Weights and scalars of a plan's operators, which go by the names that <fuseplan.h> says. */
class Args : public Object<fuseplan_args_t, fuseplan_args_destroy> {
public:
    explicit Args(const Plan& plan) { check(fuseplan_args_create(&raw_, plan.get())); }

    /* What an operator reads. */
    Args& operand(std::size_t op, const char* name, const void* pointer) {
        check(fuseplan_args_set_operand(raw_, op, name, pointer));
        return *this;
    }

    /* What an operator reads, and what does not change. */
    Args& constant(std::size_t op, const char* name, const void* pointer) {
        check(fuseplan_args_set_constant_operand(raw_, op, name, pointer));
        return *this;
    }

    /* What an operator writes besides the output. */
    Args& result(std::size_t op, const char* name, void* pointer) {
        check(fuseplan_args_set_result(raw_, op, name, pointer));
        return *this;
    }

    Args& scalar(std::size_t op, const char* name, double value) {
        check(fuseplan_args_set_scalar(raw_, op, name, value));
        return *this;
    }

    Args& scales(std::size_t op, float alpha, float beta) {
        check(fuseplan_args_set_scales(raw_, op, alpha, beta));
        return *this;
    }
};

inline void Compiled::execute(const Handle& handle,
                              const Args& args,
                              const void* input,
                              void* output,
                              void* workspace,
                              std::size_t workspace_bytes) const {
    check(fuseplan_execute(handle.get(), raw_, args.get(), input, output, workspace, workspace_bytes));
}

} // namespace fuseplan

#endif
