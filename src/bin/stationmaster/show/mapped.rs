//! Keys of mapped tasks that were typed without an index.

use stationmaster::TaskKey;
use stationmaster::store::Store;
use stationmaster::task::TaskQuery;

use super::Stop;
use super::tasks::walk;
use crate::args::Page;

/// How many tasks of the run are read in search of the indices.
const READ: usize = 10_000;

/// Returns the end of a sentence about the only key, which was not found: which indices it needs. Returns nothing about
/// one of many keys, because each would cost a walk.
pub fn hint(store: &dyn Store, keys: &[TaskKey]) -> Result<String, Stop> {
    let [key @ TaskKey { map_index: None, .. }] = keys else { return Ok(String::new()) };
    let mut query = TaskQuery::all();
    query.namespace = Some(key.namespace.clone());
    query.workflow = Some(key.workflow.clone());
    query.run = Some(key.run.clone());
    let mut indices: Vec<u32> = Vec::new();
    // The list is by key, so the tasks of one name follow each other.
    let mut page = Page::of(READ.min(1_000));
    let mut last_is_like_it = false;
    for _ in 0..READ / 1_000 {
        let next = walk(store, &query, &page, |tasks| {
            last_is_like_it = tasks.last().is_some_and(|task| task.key.task == key.task);
            let like_it = tasks.into_iter().filter(|task| task.key.task == key.task);
            indices.extend(like_it.filter_map(|task| task.key.map_index));
        })?;
        last_is_like_it &= next.is_some();
        if next.is_none() || !(indices.is_empty() || last_is_like_it) {
            break;
        }
        page.after = next;
    }
    indices.sort_unstable();
    Ok(sentence(&indices, last_is_like_it))
}

fn sentence(indices: &[u32], goes_on: bool) -> String {
    let more = if goes_on { " or more" } else { "" };
    match indices {
        [] => String::new(),
        [only] => format!("; this task is mapped: add an index, which is {only}{more}"),
        [first, .., last] if (last - first) as usize == indices.len() - 1 => {
            format!("; this task is mapped: add an index, {first} to {last}{more}")
        }
        [first, .., last] => {
            let count = indices.len();
            format!(
                "; this task is mapped: add an index, one of {count}{more} between {first} and {last}{more}"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::sentence;

    #[test]
    fn indices_may_have_gaps() {
        assert_eq!(sentence(&[], false), "");
        assert_eq!(sentence(&[3], false), "; this task is mapped: add an index, which is 3");
        assert_eq!(sentence(&[0, 1, 2], false), "; this task is mapped: add an index, 0 to 2");
        assert_eq!(sentence(&[0, 1, 2], true), "; this task is mapped: add an index, 0 to 2 or more");
        assert_eq!(
            sentence(&[0, 2, 9], false),
            "; this task is mapped: add an index, one of 3 between 0 and 9"
        );
    }
}
