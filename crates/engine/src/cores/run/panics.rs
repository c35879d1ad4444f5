//! Reports a panic on a core's thread as the core's failure.

use std::{
    any::Any,
    cell::RefCell,
    sync::{Arc, Once},
};

use super::{Control, CoreFailure};

thread_local! {
    /// Name of this thread and the control that its panics are reported to; set on cores and their helper
    /// threads.
    static WATCHED: RefCell<Option<(String, Arc<Control>)>> = const { RefCell::new(None) };
}

pub(super) fn watch_for_panics(core: String, control: &Arc<Control>) {
    WATCHED.set(Some((core, Arc::clone(control))));
}

pub(super) fn install_hook() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            before(panic);
            // A thread whose thread-locals are gone no longer runs this program's code.
            let watched =
                WATCHED.try_with(|watched| watched.try_borrow().ok().and_then(|known| known.clone()));
            if let Ok(Some((core, control))) = watched {
                let place = panic.location().map(|place| format!(" ({place})")).unwrap_or_default();
                let message = format!("{}{place}", text_of(panic.payload()));
                control.fail(CoreFailure::Panicked { core, message });
            }
        }));
    });
}

pub(super) fn text_of(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_owned())
}
