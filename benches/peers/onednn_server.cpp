// oneDNN side of the CPU comparison. One command a line on stdin, one answer a line on stdout:
//
//   setup key=value ...    ready <what was chosen>
//   run <seconds>          time <seconds a call> <calls>
//   output <file>          done          (the last result, f32 NCHW)
//
// Anything that goes wrong is answered by `error <text>`. The keys of `setup`:
//   op      conv (convolution + bias + ReLU) or bn (inference batch-norm + ReLU)
//   dtype   f32, bf16 or f16
//   layout  of the user's tensors: nchw, nhwc, or any (oneDNN chooses; its reorders are not timed)
//   path    direct (the primitive works on the user's layout) or reorder (layout any, reorders timed)
//   weights packed (reordered once) or raw (reordered in every call)
//   data    folder with x, w, b, scale, shift, mean, variance: f32, x in NCHW, w in (G)OIHW
//   n c h w k kernel stride pad dilation groups
//
// The number of threads is the environment's: OMP_NUM_THREADS for OpenMP, the affinity mask for TBB.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <oneapi/dnnl/dnnl.hpp>

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;
using Keys = std::map<std::string, std::string>;

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

memory::data_type data_type(const std::string &name) {
    if (name == "f32") return memory::data_type::f32;
    if (name == "bf16") return memory::data_type::bf16;
    if (name == "f16") return memory::data_type::f16;
    throw std::invalid_argument("unknown dtype " + name);
}

class Side {
public:
    std::string setup(Keys &keys) {
        calls_.clear();
        before_wait_ = 1;
        if (keys.at("op") == "bn") return batch_norm(keys);
        return convolution(keys);
    }

    std::string run(double seconds) {
        if (calls_.empty()) throw std::logic_error("run before setup");
        call();
        stream_.wait();
        const double start = now();
        double elapsed = 0;
        long count = 0;
        do {
            // Several calls may be queued before a wait, so that an asynchronous runtime hides its own cost.
            for (long i = 0; i < before_wait_; i++) call();
            stream_.wait();
            count += before_wait_;
            elapsed = now() - start;
        } while (elapsed < seconds);
        before_wait_ = std::clamp(long(0.002 * count / elapsed), 1L, 16L);
        std::ostringstream answer;
        answer << "time " << elapsed / count << " " << count;
        return answer.str();
    }

    void output(const std::string &file) {
        if (calls_.empty()) throw std::logic_error("output before setup");
        memory plain({output_.get_desc().get_dims(), memory::data_type::f32, memory::format_tag::nchw}, engine_);
        reorder(output_, plain);
        std::ofstream out(file, std::ios::binary);
        const size_t bytes = plain.get_desc().get_size();
        char *data = plain.map_data<char>();
        out.write(data, std::streamsize(bytes));
        plain.unmap_data(data);
        if (!out) throw std::runtime_error("cannot write " + file);
    }

private:
    dnnl::engine engine_ {dnnl::engine::kind::cpu, 0};
    dnnl::stream stream_ {engine_, dnnl::stream::flags::in_order};
    std::vector<std::pair<dnnl::primitive, Arguments>> calls_;
    memory output_;
    long before_wait_ = 1;

    void call() {
        for (auto &[primitive, arguments] : calls_) primitive.execute(stream_, arguments);
    }

    void reorder(memory &from, memory &to) {
        dnnl::reorder(from, to).execute(stream_, from, to);
        stream_.wait();
    }

    // Reads an f32 file of the shape of `desc` in the plain order `plain` and converts it to `desc`.
    memory read(const Keys &keys, const std::string &name, const memory::desc &desc, memory::format_tag plain) {
        memory source({desc.get_dims(), memory::data_type::f32, plain}, engine_);
        const std::string file = keys.at("data") + "/" + name;
        std::ifstream in(file, std::ios::binary);
        char *data = source.map_data<char>();
        in.read(data, std::streamsize(source.get_desc().get_size()));
        source.unmap_data(data);
        if (!in) throw std::runtime_error("cannot read " + file);
        memory result(desc, engine_);
        reorder(source, result);
        return result;
    }

    // Adds the calls that take the input `x` from the user's memory to the user's output through `primitive`.
    void add(const Keys &keys, const dnnl::primitive &primitive, Arguments arguments, const memory::desc &source,
            const memory::desc &target, const memory::desc &user_source, const memory::desc &user_target) {
        memory from = read(keys, "x", user_source, memory::format_tag::nchw), to(user_target, engine_);
        memory inner_from = from, inner_to = to;
        if (source != user_source) {
            inner_from = memory(source, engine_);
            add_reorder(from, inner_from);
        }
        if (target != user_target) inner_to = memory(target, engine_);
        arguments[DNNL_ARG_SRC] = inner_from;
        arguments[DNNL_ARG_DST] = inner_to;
        calls_.emplace_back(primitive, arguments);
        if (target != user_target) add_reorder(inner_to, to);
        output_ = to;
    }

    void add_reorder(memory &from, memory &to) {
        calls_.emplace_back(dnnl::reorder(from, to), Arguments {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
    }

    std::string convolution(Keys &keys) {
        auto number = [&](const char *key) { return memory::dim(std::stol(keys.at(key))); };
        const memory::dim n = number("n"), c = number("c"), h = number("h"), w = number("w"), k = number("k");
        const memory::dim kernel = number("kernel"), stride = number("stride"), pad = number("pad");
        const memory::dim dilation = number("dilation"), groups = number("groups");
        const memory::dim reach = dilation * (kernel - 1) + 1;
        const memory::dims source_dims {n, c, h, w};
        const memory::dims target_dims {n, k, (h + 2 * pad - reach) / stride + 1, (w + 2 * pad - reach) / stride + 1};
        memory::dims weight_dims {k / groups, c / groups, kernel, kernel};
        if (groups > 1) weight_dims.insert(weight_dims.begin(), groups);

        using tag = memory::format_tag;
        const auto type = data_type(keys.at("dtype"));
        const std::string layout = keys.at("layout");
        const bool reorders = keys.at("path") == "reorder";
        const tag user = layout == "nhwc" ? tag::nhwc : layout == "nchw" ? tag::nchw : tag::any;
        const tag inner = reorders ? tag::any : user;
        const tag plain_weights = groups > 1 ? tag::goihw : tag::oihw;

        dnnl::post_ops relu;
        relu.append_eltwise(dnnl::algorithm::eltwise_relu, 0, 0);
        dnnl::primitive_attr attributes;
        attributes.set_post_ops(relu);
        const dnnl::convolution_forward::primitive_desc chosen(engine_, dnnl::prop_kind::forward_inference,
                dnnl::algorithm::convolution_direct, {source_dims, type, inner}, {weight_dims, type, tag::any},
                {{k}, memory::data_type::f32, tag::a}, {target_dims, type, inner}, {stride, stride},
                {dilation - 1, dilation - 1}, {pad, pad}, {pad, pad}, attributes);

        // A scalar loop that takes minutes and can never be the best way, since `reorder` is there too.
        if (layout == "nchw" && std::string(chosen.impl_info_str()).rfind("ref", 0) == 0)
            throw std::runtime_error("only oneDNN's reference implementation");
        memory weights = read(keys, "w", chosen.weights_desc(), plain_weights);
        memory bias = read(keys, "b", chosen.bias_desc(), tag::a);
        if (keys.at("weights") == "raw") {
            memory raw = read(keys, "w", {weight_dims, type, plain_weights}, plain_weights);
            add_reorder(raw, weights);
        }
        const memory::desc source = chosen.src_desc(), target = chosen.dst_desc();
        add(keys, dnnl::convolution_forward(chosen), {{DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_BIAS, bias}},
                source, target, reorders ? memory::desc(source_dims, type, user) : source,
                reorders ? memory::desc(target_dims, type, user) : target);
        return chosen.impl_info_str();
    }

    std::string batch_norm(Keys &keys) {
        auto number = [&](const char *key) { return memory::dim(std::stol(keys.at(key))); };
        const memory::dims dims {number("n"), number("c"), number("h"), number("w")};
        using tag = memory::format_tag;
        const std::string layout = keys.at("layout");
        const auto type = data_type(keys.at("dtype"));
        // Batch-norm takes its input's layout, so here the choice that a convolution would leave to oneDNN is ours.
        const memory::desc blocked(dims, type, tag::nChw16c);
        const memory::desc plain(dims, type, layout == "nhwc" ? tag::nhwc : tag::nchw);
        const memory::desc user = layout == "any" ? blocked : plain;
        const memory::desc desc = keys.at("path") == "reorder" ? blocked : user;
        const memory::desc channels({dims[1]}, memory::data_type::f32, tag::a);
        using flags = dnnl::normalization_flags;
        const auto inference = flags::use_global_stats | flags::use_scale | flags::use_shift | flags::fuse_norm_relu;
        const dnnl::batch_normalization_forward::primitive_desc chosen(
                engine_, dnnl::prop_kind::forward_inference, desc, desc, 1e-5f, inference);
        add(keys, dnnl::batch_normalization_forward(chosen),
                {{DNNL_ARG_MEAN, read(keys, "mean", channels, tag::a)},
                        {DNNL_ARG_VARIANCE, read(keys, "variance", channels, tag::a)},
                        {DNNL_ARG_SCALE, read(keys, "scale", channels, tag::a)},
                        {DNNL_ARG_SHIFT, read(keys, "shift", channels, tag::a)}},
                desc, desc, user, user);
        return chosen.impl_info_str();
    }
};

} // namespace

int main() {
    Side side;
    std::string line;
    while (std::getline(std::cin, line)) {
        std::istringstream words(line);
        std::string command, word;
        words >> command;
        try {
            if (command == "setup") {
                Keys keys;
                while (words >> word) {
                    const size_t equals = word.find('=');
                    keys[word.substr(0, equals)] = word.substr(equals + 1);
                }
                const std::string chosen = side.setup(keys);
                std::cout << "ready " << chosen << std::endl;
            } else if (command == "run") {
                double seconds = 0;
                words >> seconds;
                std::cout << side.run(seconds) << std::endl;
            } else if (command == "output") {
                words >> word;
                side.output(word);
                std::cout << "done" << std::endl;
            } else {
                throw std::invalid_argument("unknown command " + command);
            }
        } catch (const std::exception &error) {
            std::cout << "error " << error.what() << std::endl;
        }
    }
}
