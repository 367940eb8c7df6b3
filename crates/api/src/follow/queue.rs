//! A queue from one sender to many readers, bounded by bytes. Each item is kept once, until all have read it. A reader
//! that is too far behind is ended at once, whether it asks for the next item or not: what waited for it is freed.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use domain::OrgId;
use tokio::sync::Notify;

use super::budget::{QueueAccount, QueueBudget, Queued};

/// An item of a queue, which knows how much memory it takes.
pub(crate) trait Weighed: Clone + Send + 'static {
    /// Returns its bytes, about.
    fn weight(&self) -> usize;
}

/// The reason why a reader has no next item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoItem {
    /// There is none yet.
    Yet,
    /// The reader was too far behind, and is ended.
    Behind,
    /// The sender has gone.
    Closed,
}

struct Item<T> {
    value: T,
    weight: usize,
    /// How many readers have not read it.
    unread: usize,
}

struct Ring<T> {
    items: VecDeque<Item<T>>,
    /// The number of the first item.
    first: u64,
    /// The weight of all items. The slowest reader is this far behind.
    bytes: usize,
    /// The number of the next item of each reader.
    readers: HashMap<u64, u64>,
    next_reader: u64,
    is_closed: bool,
}

impl<T: Clone> Ring<T> {
    fn end(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    /// Takes a reader out. Returns the bytes that this frees.
    fn remove(&mut self, reader: u64) -> usize {
        let Some(next) = self.readers.remove(&reader) else { return 0 };
        let read = usize::try_from(next - self.first).unwrap_or(usize::MAX);
        self.items.iter_mut().skip(read).for_each(|item| item.unread -= 1);
        self.trim()
    }

    /// Takes the readers out that have not read the first item. Returns the bytes that this frees.
    fn remove_slowest(&mut self) -> usize {
        let slowest: Vec<u64> = self
            .readers
            .iter()
            .filter_map(|(reader, next)| (*next == self.first).then_some(*reader))
            .collect();
        slowest.into_iter().map(|reader| self.remove(reader)).sum()
    }

    /// Drops the items that all have read. Returns their bytes.
    fn trim(&mut self) -> usize {
        let mut freed = 0;
        while let Some(item) = self.items.pop_front_if(|item| item.unread == 0) {
            self.first += 1;
            freed += item.weight;
        }
        self.bytes -= freed;
        freed
    }

    fn take(&mut self, reader: u64) -> Result<(T, usize), NoItem> {
        let end = self.end();
        let next = self.readers.get_mut(&reader).ok_or(NoItem::Behind)?;
        if *next == end {
            return Err(if self.is_closed { NoItem::Closed } else { NoItem::Yet });
        }
        let at = usize::try_from(*next - self.first).unwrap_or(usize::MAX);
        *next += 1;
        let item = &mut self.items[at];
        item.unread -= 1;
        let value = item.value.clone();
        Ok((value, self.trim()))
    }
}

struct Shared<T> {
    ring: Mutex<Ring<T>>,
    news: Notify,
    waiting: AtomicUsize,
    account: QueueAccount,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Ring<T>> {
        // No foreign code runs under this lock but `clone` of an item.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the size of the queue after a change under its lock.
    fn note(&self, ring: &Ring<T>, freed: usize) {
        self.waiting.store(ring.bytes, Ordering::Relaxed);
        self.account.subtract(freed);
    }
}

impl<T: Weighed> Queued for Shared<T> {
    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn end_slowest(&self) {
        let mut ring = self.lock();
        let freed = ring.remove_slowest();
        self.note(&ring, freed);
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let bytes = self.lock().bytes;
        self.account.subtract(bytes);
    }
}

/// Closes the queue when its last sender is dropped.
struct Owner<T>(Arc<Shared<T>>);

impl<T> Drop for Owner<T> {
    fn drop(&mut self) {
        self.0.lock().is_closed = true;
        self.0.news.notify_waiters();
    }
}

/// The sender of a queue.
pub(crate) struct QueueSender<T>(Arc<Owner<T>>);

impl<T> Clone for QueueSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Weighed> QueueSender<T> {
    /// Makes a queue for readers of `org`.
    pub(crate) fn new(budget: &Arc<QueueBudget>, org: OrgId) -> Self {
        let ring = Ring {
            items: VecDeque::new(),
            first: 0,
            bytes: 0,
            readers: HashMap::new(),
            next_reader: 0,
            is_closed: false,
        };
        let shared = Arc::new(Shared {
            ring: Mutex::new(ring),
            news: Notify::new(),
            waiting: AtomicUsize::new(0),
            account: budget.open(org),
        });
        let queue: Weak<dyn Queued> = Arc::downgrade(&(shared.clone() as Arc<dyn Queued>));
        shared.account.register(queue);
        Self(Arc::new(Owner(shared)))
    }

    /// Sends an item to those who read now. Ends readers that are too far behind.
    pub(crate) fn send(&self, value: T) {
        let shared = &self.0.0;
        {
            let mut ring = shared.lock();
            let unread = ring.readers.len();
            if unread == 0 {
                return;
            }
            let weight = value.weight();
            ring.items.push_back(Item { value, weight, unread });
            ring.bytes += weight;
            shared.account.add(weight);
            let mut freed = 0;
            // A single item has a place, however large it is.
            while ring.bytes > shared.account.stream_limit() && ring.items.len() > 1 {
                freed += ring.remove_slowest();
            }
            shared.note(&ring, freed);
        }
        shared.news.notify_waiters();
        shared.account.keep_limits();
    }

    /// Returns a reader of all items from now on.
    pub(crate) fn subscribe(&self) -> QueueReader<T> {
        let shared = self.0.0.clone();
        let mut ring = shared.lock();
        ring.next_reader += 1;
        let (number, end) = (ring.next_reader, ring.end());
        ring.readers.insert(number, end);
        drop(ring);
        QueueReader { shared, number }
    }

    /// Returns how many readers there are that are not ended.
    pub(crate) fn readers(&self) -> usize {
        self.0.0.lock().readers.len()
    }
}

/// A reader of a queue.
pub(crate) struct QueueReader<T: Weighed> {
    shared: Arc<Shared<T>>,
    number: u64,
}

impl<T: Weighed> QueueReader<T> {
    /// Returns the next item, if there is one.
    pub(crate) fn try_recv(&mut self) -> Result<T, NoItem> {
        let mut ring = self.shared.lock();
        let (value, freed) = ring.take(self.number)?;
        self.shared.note(&ring, freed);
        Ok(value)
    }

    /// Waits for the next item. Cancel safe. Never returns [`NoItem::Yet`].
    pub(crate) async fn recv(&mut self) -> Result<T, NoItem> {
        let shared = self.shared.clone();
        loop {
            let mut news = std::pin::pin!(shared.news.notified());
            news.as_mut().enable(); // before the look, so that no item is missed
            match self.try_recv() {
                Err(NoItem::Yet) => news.await,
                other => return other,
            }
        }
    }
}

impl<T: Weighed> Drop for QueueReader<T> {
    fn drop(&mut self) {
        let mut ring = self.shared.lock();
        let freed = ring.remove(self.number);
        self.shared.note(&ring, freed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::QueueLimits;
    use super::*;

    impl Weighed for usize {
        fn weight(&self) -> usize {
            *self
        }
    }

    fn budget(stream: usize, org: usize, gateway: usize) -> Arc<QueueBudget> {
        QueueBudget::new(QueueLimits { stream, org, gateway })
    }

    // Finding core-3 H2: one silent reader kept every frame of its organisation.
    #[tokio::test]
    async fn a_reader_that_is_too_far_behind_is_ended() {
        let budget = budget(10, 100, 100);
        let sender = QueueSender::new(&budget, OrgId::FIRST);
        let (mut silent, mut quick) = (sender.subscribe(), sender.subscribe());
        for _ in 0..3 {
            sender.send(4_usize);
            assert_eq!(quick.recv().await, Ok(4));
        }
        assert_eq!(budget.waiting(), 0, "it is freed though nobody asks");
        assert_eq!(silent.try_recv(), Err(NoItem::Behind));
        assert_eq!((sender.readers(), quick.try_recv()), (1, Err(NoItem::Yet)));
        sender.send(40);
        assert_eq!(quick.recv().await, Ok(40), "one item always has a place");
    }

    #[tokio::test]
    async fn what_left_readers_had_not_read_is_freed() {
        let budget = budget(100, 100, 100);
        let sender = QueueSender::new(&budget, OrgId::FIRST);
        let (mut one, two) = (sender.subscribe(), sender.subscribe());
        sender.send(4_usize);
        sender.send(5);
        assert_eq!(one.recv().await, Ok(4));
        assert_eq!(budget.waiting(), 9);
        drop(two);
        assert_eq!(budget.waiting(), 5);
        drop(sender);
        assert_eq!((one.recv().await, one.recv().await), (Ok(5), Err(NoItem::Closed)));
        assert_eq!(budget.waiting(), 0);
    }

    #[test]
    fn an_organisation_over_its_bytes_ends_its_fullest_queue() {
        let budget = budget(10, 16, 100);
        let other = OrgId::random();
        let [full, small] = [(); 2].map(|()| QueueSender::new(&budget, OrgId::FIRST));
        let foreign = QueueSender::new(&budget, other);
        let (mut slow, mut keeps, mut theirs) =
            (full.subscribe(), small.subscribe(), foreign.subscribe());
        foreign.send(9_usize);
        full.send(10_usize);
        small.send(5);
        small.send(4);
        assert_eq!(slow.try_recv(), Err(NoItem::Behind));
        assert_eq!((keeps.try_recv(), theirs.try_recv()), (Ok(5), Ok(9)));
    }

    #[test]
    fn a_gateway_over_its_bytes_ends_the_largest_organisation() {
        let budget = budget(10, 100, 16);
        let [full, small] =
            [OrgId::FIRST, OrgId::random()].map(|org| QueueSender::new(&budget, org));
        let (mut slow, mut keeps) = (full.subscribe(), small.subscribe());
        full.send(10_usize);
        small.send(7);
        assert_eq!((slow.try_recv(), keeps.try_recv()), (Err(NoItem::Behind), Ok(7)));
        drop((full, small, slow, keeps));
        assert_eq!(budget.organisations(), 0, "no account is left");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_reader_gets_every_item_in_order() {
        let sender = QueueSender::new(&budget(usize::MAX, usize::MAX, usize::MAX), OrgId::FIRST);
        let readers: Vec<_> = (0..4).map(|_| sender.subscribe()).collect();
        let read = readers.into_iter().map(async |mut reader| {
            let mut items = Vec::new();
            while let Ok(item) = reader.recv().await {
                items.push(item);
            }
            items
        });
        let sends = async {
            for item in 0..2_000 {
                sender.send(item);
                tokio::task::yield_now().await;
            }
            drop(sender);
        };
        let (read, ()) = tokio::join!(futures::future::join_all(read), sends);
        assert!(read.iter().all(|items| items.iter().copied().eq(0..2_000)));
    }
}
