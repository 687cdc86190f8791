//! Random call sequences against the model; `fuzz/` looks for worse ones.

mod model;

#[test]
fn calls_in_any_order_answer_as_the_model_says() {
    // Failing calls are the point here; their lines on stderr are not.
    // SAFETY: no other thread of this process reads the environment yet.
    unsafe { std::env::set_var("MIOPEN_LOG_LEVEL", "1") };
    let sequences = if cfg!(miri) { 2 } else { 4000 };
    let mut executed = 0;
    for seed in 0..sequences {
        let mut random = fastrand::Rng::with_seed(seed);
        let bytes: Vec<u8> = (0..random.usize(50..1500)).map(|_| random.u8(..)).collect();
        executed += model::run(&bytes);
    }
    assert!(
        cfg!(miri) || executed > 100,
        "only {executed} executions succeeded: the sequences test too little"
    );
}
