//! Setters for builders.

/// Writes `pub` setters inside an `impl` block, for builders whose methods take and return `self`.
///
/// ```text
/// setters! {
///     /// Sets the priority.
///     priority: i32;                                   // self.priority = priority
///     /// Sets the workflow.
///     workflow: Some(WorkflowId);                      // self.workflow = Some(workflow)
///     /// Adds a limit key.
///     limit(key: LimitKey) { limits.push(key) }        // self.limits.push(key)
///     /// Sets the text.
///     payload(text: impl Into<String>) { payload = text.into() }
/// }
/// ```
///
/// Setters that check their argument or change several fields are written by hand.
macro_rules! setters {
    () => {};
    ($(#[$doc:meta])* $field:ident: Some($type:ty); $($rest:tt)*) => {
        $crate::base::setters! { $(#[$doc])* $field($field: $type) { $field = Some($field) } $($rest)* }
    };
    ($(#[$doc:meta])* $field:ident: $type:ty; $($rest:tt)*) => {
        $crate::base::setters! { $(#[$doc])* $field($field: $type) { $field = $field } $($rest)* }
    };
    ($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) { $($change:tt)+ } $($rest:tt)*) => {
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $($arg: $type),*) -> Self {
            self.$($change)+;
            self
        }
        $crate::base::setters! { $($rest)* }
    };
}

pub(crate) use setters;
