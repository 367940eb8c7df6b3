//! Who gets the next slot: deficit round robin between organisations. Pure.
//!
//! ```text
//! push ─▶ one lane an organisation, first in first out ─▶ pop: the ring's next lane that owes nothing
//! charge: a drain that ran n turns owes n - 1 visits of the ring
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Visits of the ring that an organisation can owe: a drain that ran for an hour is not paid for by an
/// hour of silence.
const DEBT: i64 = 16;

/// Things that wait, each in the lane of its organisation. Every lane gets one turn's worth a round, and
/// what a drain has used beyond that is taken off afterwards: nobody knows before how many turns it runs.
///
/// A thing waits once, however often it is pushed. Bounded: a full queue takes a new thing only at the
/// expense of the longest lane, so that nobody can fill it and keep others out; what is dropped is found
/// by the next sweep. Operations are amortised
/// O(log n), but a push into a full queue looks at all lanes.
#[derive(Debug)]
pub(crate) struct FairQueue<K, T> {
    lanes: BTreeMap<K, Lane<T>>,
    /// Lanes that have things or debts, each once, the next one first.
    ring: VecDeque<K>,
    waiting: BTreeSet<T>,
    bound: usize,
}

#[derive(Debug)]
struct Lane<T> {
    things: VecDeque<T>,
    /// Negative: visits that it has used ahead. Never positive between two calls.
    credit: i64,
}

impl<T> Lane<T> {
    fn new() -> Self {
        Self { things: VecDeque::new(), credit: 0 }
    }
}

impl<K: Clone + Ord, T: Clone + Ord> FairQueue<K, T> {
    /// Nothing waits. At most `bound` things ever will.
    pub(crate) fn new(bound: usize) -> Self {
        Self { lanes: BTreeMap::new(), ring: VecDeque::new(), waiting: BTreeSet::new(), bound }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds `thing` behind all that waits in the lane of `key`. It stays where it is if it waits already,
    /// and is not taken if the queue is full and no other lane is longer.
    pub(crate) fn push(&mut self, key: &K, thing: T) {
        if self.waiting.contains(&thing) || (self.len() >= self.bound && !self.make_room(key)) {
            return;
        }
        self.lane(key).things.push_back(thing.clone());
        self.waiting.insert(thing);
    }

    /// The next thing: of the first lane in the ring that has one and owes nothing. A debt shrinks with
    /// each visit, also of a lane where nothing waits.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            // Nobody waited for what was owed.
            self.lanes.clear();
            self.ring.clear();
            return None;
        }
        while let Some(key) = self.ring.pop_front() {
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            let thing = if lane.credit < 0 {
                lane.credit += 1;
                None
            } else {
                lane.things.pop_front()
            };
            if lane.things.is_empty() && lane.credit >= 0 {
                self.lanes.remove(&key);
            } else {
                self.ring.push_back(key);
            }
            if let Some(thing) = thing {
                self.waiting.remove(&thing);
                return Some(thing);
            }
        }
        None
    }

    /// A drain of `key` has ended after so many turns; the first one was paid for when it was popped.
    /// Nothing is owed while nobody waits.
    pub(crate) fn charge(&mut self, key: &K, turns: u32) {
        let beyond = i64::from(turns.saturating_sub(1));
        if beyond > 0 && !self.is_empty() {
            let lane = self.lane(key);
            lane.credit = (lane.credit - beyond).max(-DEBT);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.lanes.clear();
        self.ring.clear();
        self.waiting.clear();
    }

    fn lane(&mut self, key: &K) -> &mut Lane<T> {
        if !self.lanes.contains_key(key) {
            self.ring.push_back(key.clone());
        }
        self.lanes.entry(key.clone()).or_insert_with(Lane::new)
    }

    /// Drops the newest thing of the longest lane if that is longer than `key`'s will be.
    fn make_room(&mut self, key: &K) -> bool {
        let ours = self.lanes.get(key).map_or(0, |lane| lane.things.len());
        let longest = self.lanes.values_mut().max_by_key(|lane| lane.things.len());
        let dropped = longest
            .filter(|lane| lane.things.len() > ours + 1)
            .and_then(|lane| lane.things.pop_back());
        dropped.is_some_and(|thing| self.waiting.remove(&thing))
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    type Queue = FairQueue<u8, (u8, usize)>;

    fn filled(lanes: &[(u8, usize)]) -> Queue {
        let mut queue = Queue::new(10_000);
        for &(key, count) in lanes {
            for number in 0..count {
                queue.push(&key, (key, number));
            }
        }
        queue
    }

    fn keys(queue: &mut Queue, count: usize) -> Vec<u8> {
        std::iter::from_fn(|| queue.pop()).take(count).map(|(key, _)| key).collect()
    }

    #[test]
    fn a_newcomer_is_served_within_one_round_of_a_thousand_that_wait() {
        let mut queue = filled(&[(1, 1_000)]);
        assert_eq!(keys(&mut queue, 3), [1, 1, 1]);
        queue.push(&2, (2, 0));
        assert_eq!(keys(&mut queue, 3), [1, 2, 1]);
    }

    #[test]
    fn a_drain_of_many_turns_is_paid_for_in_rounds() {
        let mut queue = filled(&[(1, 10), (2, 10)]);
        assert_eq!(keys(&mut queue, 2), [1, 2]);
        queue.charge(&1, 4);
        assert_eq!(keys(&mut queue, 7), [2, 2, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn what_is_owed_is_bounded_and_forgotten_once_nobody_waits() {
        let mut queue = filled(&[(1, 2), (2, 40)]);
        queue.charge(&1, u32::MAX);
        let served = keys(&mut queue, 20);
        assert_eq!(served.iter().position(|key| *key == 1), Some(16));
        let mut queue = filled(&[(1, 1)]);
        queue.charge(&1, 100);
        assert_eq!((keys(&mut queue, 2), queue.ring.len()), (vec![1], 0));
        queue.charge(&1, 100);
        assert!(queue.lanes.is_empty(), "nobody waits, so nothing is owed");
    }

    #[test]
    fn an_absent_organisation_pays_while_others_are_served() {
        let mut queue = filled(&[(2, 10)]);
        queue.charge(&1, 3);
        assert_eq!(keys(&mut queue, 2), [2, 2]);
        queue.push(&1, (1, 0));
        assert_eq!(keys(&mut queue, 2), [2, 1], "its debt was paid by then");
    }

    #[test]
    fn a_full_queue_makes_room_at_the_expense_of_the_longest_lane() {
        let mut queue = Queue::new(4);
        for number in 0..9 {
            queue.push(&1, (1, number));
        }
        queue.push(&2, (2, 0));
        queue.push(&3, (3, 0));
        queue.push(&1, (1, 9));
        assert_eq!(queue.len(), 4);
        let all: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(all, [(1, 0), (2, 0), (3, 0), (1, 1)]);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Push(u8),
        Pop,
        Charge(u8, u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..5_u8).prop_map(Step::Push),
            3 => Just(Step::Pop),
            1 => (0..5_u8, 0..40_u32).prop_map(|(key, turns)| Step::Charge(key, turns)),
        ]
    }

    proptest! {
        /// Nothing is lost, doubled or overtaken within its lane, and the bookkeeping stays bounded.
        #[test]
        fn each_lane_is_first_in_first_out(steps in vec(step(), 0..300)) {
            let mut queue = Queue::new(10_000);
            let mut expected: BTreeMap<u8, VecDeque<usize>> = BTreeMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Push(key) => {
                        queue.push(&key, (key, number));
                        queue.push(&key, (key, number));
                        expected.entry(key).or_default().push_back(number);
                    }
                    Step::Pop => match queue.pop() {
                        Some((key, number)) => {
                            let lane = expected.get_mut(&key);
                            prop_assert_eq!(lane.and_then(VecDeque::pop_front), Some(number));
                        }
                        None => prop_assert!(expected.values().all(VecDeque::is_empty)),
                    },
                    Step::Charge(key, turns) => queue.charge(&key, turns),
                }
                let waiting: usize = expected.values().map(VecDeque::len).sum();
                prop_assert_eq!(queue.len(), waiting);
                prop_assert_eq!(queue.ring.len(), queue.lanes.len());
                prop_assert!(queue.lanes.values().all(|lane| (-DEBT..=0).contains(&lane.credit)));
            }
        }

        /// While all have something to do, no organisation gets more than its share of turns: the
        /// difference of any two is at most what one drain may run beyond another, and no debt is so long
        /// that it is cut.
        #[test]
        fn turns_are_shared_evenly_whatever_drains_cost(
            costs in vec(1..9_u32, 2..6),
            pops in 50..400_usize,
        ) {
            let lanes: Vec<(u8, usize)> = (0..costs.len()).map(|key| (key as u8, 400)).collect();
            let mut queue = filled(&lanes);
            let mut turns = vec![0_u32; costs.len()];
            for _ in 0..pops {
                let (key, _) = queue.pop().expect("there is more than is popped");
                let cost = costs[usize::from(key)];
                turns[usize::from(key)] += cost;
                queue.charge(&key, cost);
            }
            let (most, least) = (turns.iter().max().unwrap(), turns.iter().min().unwrap());
            prop_assert!(most - least <= 9, "{turns:?}");
        }

        /// However long others' lanes are, a full queue takes what an organisation without any brings.
        #[test]
        fn nobody_can_keep_others_out(keys in vec(0..3_u8, 0..200), bound in 5..50_usize) {
            let mut queue = Queue::new(bound);
            for (number, key) in keys.into_iter().enumerate() {
                queue.push(&key, (key, number));
                prop_assert!(queue.len() <= bound);
            }
            queue.push(&9, (9, 0));
            prop_assert!(std::iter::from_fn(|| queue.pop()).any(|(key, _)| key == 9));
        }
    }
}
