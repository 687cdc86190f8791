//! What work on a device runs in, and the time in which a thread is there.

use std::marker::PhantomData;
use std::ops::Deref;

use fuseplan_api::BackendError;

use crate::Driver;
use crate::modules::Modules;

/// An opened device's driver, with the modules that it has loaded. Whatever is made of a device keeps it: streams,
/// functions and graphs do not outlive the context or the modules.
#[derive(Debug)]
pub struct Context<D: Driver> {
    driver: D,
    modules: Modules,
}

impl<D: Driver> Context<D> {
    pub(crate) fn new(driver: D) -> Self {
        Context { driver, modules: Modules::default() }
    }

    /// The driver, for what needs no current device.
    pub(crate) fn driver(&self) -> &D {
        &self.driver
    }

    /// The kernels that were loaded.
    pub(crate) fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Makes it the thread's current one until the result, by which the driver is called, is dropped.
    ///
    /// # Errors
    /// The driver refuses.
    pub fn enter(&self) -> Result<Entered<'_, D>, BackendError> {
        let before = self.driver.enter()?;
        Ok(Entered { driver: &self.driver, before, _on_this_thread: PhantomData })
    }

    /// Gives an object back. It knows its context: where that cannot be entered this is tried all the same, and of a
    /// driver that refuses nobody could be told.
    pub(crate) fn give_back(&self, end: impl FnOnce(&D) -> Result<(), BackendError>) {
        let _entered = self.enter();
        let _ = end(&self.driver);
    }
}

impl<D: Driver> Drop for Context<D> {
    fn drop(&mut self) {
        let modules = self.modules.take();
        if modules.is_empty() {
            return;
        }
        self.give_back(|driver| {
            for module in modules.values() {
                // SAFETY: the module is unloaded once; what used its functions kept this context, and is gone.
                let _ = unsafe { driver.unload(module.raw()) };
            }
            Ok(())
        });
    }
}

/// The time in which a context is the current one of the thread that entered it. It ends on that thread, since the value
/// cannot be sent to another:
///
/// ```compile_fail
/// use fuseplan_gpu::{Context, Driver};
///
/// fn end_elsewhere<D: Driver<Before = ()>>(context: &'static Context<D>) {
///     let entered = context.enter();
///     std::thread::spawn(move || drop(entered));
/// }
/// ```
///
/// What is entered may be used by several threads, though:
///
/// ```
/// use fuseplan_gpu::{Context, Driver};
///
/// fn enter_elsewhere<D: Driver<Before = ()>>(context: &'static Context<D>) {
///     std::thread::spawn(move || drop(context.enter()));
/// }
/// ```
#[derive(Debug)]
pub struct Entered<'a, D: Driver> {
    driver: &'a D,
    before: D::Before,
    _on_this_thread: PhantomData<*const ()>,
}

impl<D: Driver> Deref for Entered<'_, D> {
    type Target = D;

    fn deref(&self) -> &D {
        self.driver
    }
}

impl<D: Driver> Drop for Entered<'_, D> {
    fn drop(&mut self) {
        // SAFETY: `before` is what entering gave, on this thread, as the value is not `Send`; it is left once.
        unsafe { self.driver.leave(&self.before) };
    }
}
