//! Trained networks run through fusion plans and agree with ONNX Runtime layer by layer. The networks, the
//! stored outputs and the runner are those of `examples/trained_layers.rs`.

#[path = "../examples/trained/mod.rs"]
#[allow(dead_code, reason = "the example also prints times and titles")]
mod trained;

use fuseplan::{Handle, TensorLayout};
use trained::{BOUND, Layer, NETWORKS, Network, difference, run};

fn network(name: &str) -> Network {
    Network::load(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn layers(network: &Network, layout: TensorLayout) -> Vec<Layer> {
    run(network, &Handle::cpu(), layout, 1).unwrap_or_else(|error| panic!("{layout}: {error}"))
}

#[test]
fn every_layer_agrees_with_onnx_runtime_in_both_layouts() {
    for name in NETWORKS {
        let network = network(name);
        let [nchw, nhwc] = [TensorLayout::Nchw, TensorLayout::Nhwc].map(|layout| layers(&network, layout));
        for (a, b) in nchw.iter().zip(&nhwc) {
            for layer in [a, b] {
                let error = layer.error.unwrap_or_default();
                assert!(error <= BOUND, "{name} {} {}: {error:e}", layer.name, layer.output.layout);
                assert!(layer.plan.as_ref().is_none_or(|plan| plan.is_one_kernel()));
            }
            let expected: Vec<f32> = a.output.nchw().collect();
            let error = difference(b.output.nchw(), &expected).unwrap();
            assert!(error <= BOUND, "{name} {}: NHWC differs from NCHW by {error:e}", a.name);
        }
        assert!(nchw.iter().filter(|layer| layer.plan.is_some()).count() >= 7);
        assert!(nchw.last().is_some_and(|last| last.error.is_some()), "the last node is not compared");
    }
}

/// The comparison sees a fault in any one parameter.
#[test]
fn a_wrong_parameter_is_seen() {
    for part in ["weights", "scale", "shift", "mean", "variance"] {
        let mut network = network("textline");
        let weight = network.weights.get_mut(&format!("conv9_depthwise.{part}")).unwrap();
        weight.values[7] = weight.values[7] * 1.05 + 0.01;
        let layers = layers(&network, TensorLayout::Nchw);
        let fault = layers.iter().position(|layer| layer.error.unwrap_or_default() > BOUND);
        assert_eq!(fault.map(|i| layers[i].name.as_str()), Some("conv9_depthwise"), "{part}");
    }
}
