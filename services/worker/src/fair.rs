//! The order in which organisations get slots: deficit round robin. Pure.
//!
//! ```text
//! push ─▶ one lane per organisation, first in first out ─▶ pop: the ring's next lane without a debt
//! charge: a drain of n turns owes n - 1 visits of the ring
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The most visits of the ring that an organisation can owe. A drain that ran for an hour does not cost an hour of
/// waiting.
const DEBT: i64 = 16;

/// Waiting things, each in the lane of its organisation. Every lane gets the worth of one turn per round. Turns that
/// a drain uses beyond that are charged afterwards, since nobody knows before how many it will run.
///
/// A thing waits once, however often it is pushed. The queue is bounded: when full, it takes a new thing only in
/// place of one from the longest lane, so that nobody can fill it and keep others out. The next sweep finds what is
/// dropped. Operations are amortised O(log n), except that a push into a full queue looks at all lanes.
#[derive(Debug)]
pub(crate) struct FairQueue<K, T> {
    lanes: BTreeMap<K, Lane<T>>,
    /// Lanes with things or debts, each once, the next one first.
    ring: VecDeque<K>,
    waiting: BTreeSet<T>,
    bound: usize,
}

#[derive(Debug)]
struct Lane<T> {
    things: VecDeque<T>,
    /// Minus the number of visits owed. Never positive between two calls.
    credit: i64,
}

impl<T> Lane<T> {
    fn new() -> Self {
        Self { things: VecDeque::new(), credit: 0 }
    }
}

impl<K: Clone + Ord, T: Clone + Ord> FairQueue<K, T> {
    /// Returns an empty queue for at most `bound` things.
    pub(crate) fn new(bound: usize) -> Self {
        Self { lanes: BTreeMap::new(), ring: VecDeque::new(), waiting: BTreeSet::new(), bound }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds `thing` at the end of the lane of `key`. Does nothing if it already waits, or if the queue is full and no
    /// other lane is longer.
    pub(crate) fn push(&mut self, key: &K, thing: T) {
        if self.waiting.contains(&thing) || (self.len() >= self.bound && !self.make_room(key)) {
            return;
        }
        self.lane(key).things.push_back(thing.clone());
        self.waiting.insert(thing);
    }

    /// Returns the next thing: from the first lane in the ring that has one and owes nothing. Each visit reduces a
    /// lane's debt, even if the lane is empty.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            // Nobody waited, so all debts are forgotten.
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

    /// Charges a drain of `key` that ended after `turns` turns. The first turn was paid for when it was popped.
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

    /// Drops the newest thing of the longest lane, if that is longer than the lane of `key` will be.
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
        /// Nothing is lost, duplicated or overtaken within its lane, and the bookkeeping stays bounded.
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

        /// While all lanes have things, no organisation gets more than its share of turns: two organisations differ
        /// at most by what one drain may run beyond another. No debt here is long enough to be cut.
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

        /// A full queue takes a thing of an organisation that has none, however long the other lanes are.
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
