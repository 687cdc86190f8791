//! The speed-ups as a bar chart in the form of MIOpen's two.

use std::fmt::Write;

use super::report::Report;

/// Height of the plot, and the margins around it.
const HEIGHT: f64 = 320.0;
const TOP: f64 = 78.0;
const RIGHT: f64 = 40.0;
/// Width of a bar with the space beside it, and of the bar alone.
const SLOT: f64 = 56.0;
const BAR: f64 = 34.0;
/// The least width, so that the title has room.
const LEAST: f64 = 760.0;

const BLUE: &str = "#2f6db5";
/// Of bars whose number reads as less than 1.00.
const RED: &str = "#c8553d";
const GREY: &str = "#5f6570";
const INK: &str = "#1d2330";

/// An SVG image of the speed-ups: one bar for each configuration, a line at 1 and one at the mean.
pub(crate) fn speed_ups(report: &Report) -> String {
    let count = report.outcomes.len() as f64;
    let longest = report.outcomes.iter().map(|outcome| outcome.label.len()).max().unwrap_or(0);
    // Labels hang at 45 degrees, characters are about 6.4 wide.
    let reach = longest as f64 * 6.4 * 0.71;
    let left = (reach - SLOT / 2.0 + 14.0).max(72.0);
    let bottom = reach + 58.0;
    let width = (left + count * SLOT + RIGHT).max(LEAST);
    let slot = (width - left - RIGHT) / count;
    let height = TOP + HEIGHT + bottom;
    let greatest = report.outcomes.iter().map(|outcome| outcome.speed_up()).fold(1.0, f64::max);
    let axis = Axis::new(greatest);
    let setting = report.setting();

    let mut svg = Svg::new(width, height);
    let center = width / 2.0;
    svg.text(center, 28.0, "middle", 18, INK, &format!("{}: speed-up by fusion", setting.list.title()));
    svg.text(center, 50.0, "middle", 12, GREY, &setting.describe());
    for tick in 0..=axis.ticks {
        let value = f64::from(tick) * axis.step;
        let y = axis.y(value);
        svg.line([left, y, width - RIGHT, y], "#dfe3ea", "");
        svg.text(left - 8.0, y + 4.0, "end", 12, GREY, &format!("{value:.*}", axis.decimals()));
    }
    let middle = TOP + HEIGHT / 2.0;
    svg.rotated(left - 50.0, middle, -90, "middle", "unfused time / fused time");
    let one = axis.y(1.0);
    svg.line([left, one, width - RIGHT, one], INK, "");
    let mean = axis.y(report.mean());
    svg.line([left, mean, width - RIGHT, mean], GREY, "6 4");
    let text = format!("geometric mean {:.2} (dashed)", report.mean());
    svg.text(width - RIGHT, TOP - 8.0, "end", 12, GREY, &text);
    for (index, outcome) in report.outcomes.iter().enumerate() {
        let value = outcome.speed_up();
        let x = left + (index as f64 + 0.5) * slot;
        let hint = format!(
            "{}: fused {:.3} ms, unfused {:.3} ms, {}",
            outcome.label,
            outcome.fused * 1e3,
            outcome.unfused * 1e3,
            outcome.solver
        );
        svg.bar(x, axis.y(value), TOP + HEIGHT, if value < 0.995 { RED } else { BLUE }, &hint);
        svg.value(x, axis.y(value) - 6.0, &format!("{value:.2}"));
        svg.rotated(x + 4.0, TOP + HEIGHT + 16.0, -45, "end", &outcome.label);
    }
    svg.line([left, TOP + HEIGHT, width - RIGHT, TOP + HEIGHT], INK, "");
    svg.text(center, height - 12.0, "middle", 12, GREY, setting.list.label_form());
    svg.finish()
}

/// The scale of speed-ups, from 0 up.
struct Axis {
    step: f64,
    ticks: u32,
}

impl Axis {
    /// With room for a number above `greatest`, and at most eight ticks of a round step.
    fn new(greatest: f64) -> Self {
        let top = greatest * 1.08;
        let mut step = 0.25;
        let factors = [2.0, 2.0, 2.5].into_iter().cycle();
        for factor in factors {
            if step * 8.0 >= top || !top.is_finite() {
                break;
            }
            step *= factor;
        }
        let ticks = if top.is_finite() { (top / step).ceil() as u32 } else { 8 };
        Axis { step, ticks }
    }

    fn y(&self, value: f64) -> f64 {
        TOP + HEIGHT * (1.0 - value / (f64::from(self.ticks) * self.step))
    }

    fn decimals(&self) -> usize {
        if self.step < 0.5 { 2 } else { 1 }
    }
}

/// An image under construction.
struct Svg(String);

/// Writing into a string cannot fail.
macro_rules! put {
    ($svg:expr, $($argument:tt)*) => {{
        let _ = writeln!($svg.0, $($argument)*);
    }};
}

impl Svg {
    fn new(width: f64, height: f64) -> Self {
        let mut svg = Svg(String::new());
        put!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"Helvetica, Arial, sans-serif\">"
        );
        put!(svg, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>");
        svg
    }

    fn finish(mut self) -> String {
        put!(self, "</svg>");
        self.0
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, size: u32, fill: &str, text: &str) {
        put!(
            self,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{fill}\">{}</text>",
            escape(text)
        );
    }

    /// The number above a bar, legible where a line crosses it.
    fn value(&mut self, x: f64, y: f64, text: &str) {
        put!(
            self,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" font-size=\"12\" fill=\"{INK}\" \
             stroke=\"white\" stroke-width=\"4\" paint-order=\"stroke\">{text}</text>"
        );
    }

    fn rotated(&mut self, x: f64, y: f64, degrees: i32, anchor: &str, text: &str) {
        put!(
            self,
            "<text transform=\"translate({x:.1} {y:.1}) rotate({degrees})\" text-anchor=\"{anchor}\" \
             font-size=\"12\" fill=\"{INK}\">{}</text>",
            escape(text)
        );
    }

    fn line(&mut self, [x1, y1, x2, y2]: [f64; 4], stroke: &str, dashes: &str) {
        put!(
            self,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{stroke}\" \
             stroke-dasharray=\"{dashes}\"/>"
        );
    }

    /// A bar around `x`, with a text that viewers show when it is pointed at.
    fn bar(&mut self, x: f64, top: f64, base: f64, fill: &str, hint: &str) {
        put!(
            self,
            "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{BAR}\" height=\"{:.1}\" fill=\"{fill}\"><title>{}</title></rect>",
            x - BAR / 2.0,
            base - top,
            escape(hint)
        );
    }
}

/// A text as XML and HTML have it.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_has_round_steps_and_room() {
        for (greatest, step, ticks) in
            [(1.0, 0.25, 5), (1.7, 0.25, 8), (2.7, 0.5, 6), (3.9, 1.0, 5), (9.0, 2.5, 4), (30.0, 5.0, 7)]
        {
            let axis = Axis::new(greatest);
            assert_eq!((axis.step, axis.ticks), (step, ticks), "{greatest}");
            assert!(axis.y(greatest) > TOP && axis.y(0.0) == TOP + HEIGHT);
        }
    }

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("Some<R> & Co"), "Some&lt;R&gt; &amp; Co");
    }
}
