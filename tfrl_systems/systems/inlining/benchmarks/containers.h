// The containers of the built-in corpus. They include no headers, so any clang can compile them, and
// templates for several types give it many small calls, as C++ programs have them.
typedef unsigned long Size;
extern "C" void* allocate(Size);
extern "C" void release(void*);
inline void* operator new(Size, void* at) { return at; }

template <class T> class List {
 public:
  List() : first_(nullptr), count_(0), room_(0) {}
  ~List() { clear(); release(first_); }
  Size size() const { return count_; }
  bool empty() const { return count_ == 0; }
  T& operator[](Size k) { return first_[k]; }
  const T& operator[](Size k) const { return first_[k]; }
  T* begin() { return first_; }
  T* end() { return first_ + count_; }
  void push(const T& value) { grow(count_ + 1); new (first_ + count_++) T(value); }
  void pop() { first_[--count_].~T(); }
  void clear() { while (!empty()) pop(); }
 private:
  void grow(Size wanted) {
    if (wanted <= room_) return;
    Size room = room_ ? 2 * room_ : 4;
    T* fresh = static_cast<T*>(allocate(room * sizeof(T)));
    for (Size k = 0; k < count_; ++k) { new (fresh + k) T(first_[k]); first_[k].~T(); }
    release(first_);
    first_ = fresh;
    room_ = room;
  }
  T* first_;
  Size count_, room_;
};

template <class T> void swap_values(T& a, T& b) { T kept(a); a = b; b = kept; }
template <class T, class Less> void sift(List<T>& heap, Size k, Size end, Less less) {
  for (Size child; (child = 2 * k + 1) < end; k = child) {
    if (child + 1 < end && less(heap[child], heap[child + 1])) ++child;
    if (!less(heap[k], heap[child])) return;
    swap_values(heap[k], heap[child]);
  }
}
template <class T, class Less> void sort(List<T>& list, Less less) {
  for (Size k = list.size() / 2; k-- > 0;) sift(list, k, list.size(), less);
  for (Size end = list.size(); end-- > 1;) {
    swap_values(list[0], list[end]);
    sift(list, 0, end, less);
  }
}
template <class K, class V> struct Entry { K key; V value; };
template <class K, class V> class Table {
 public:
  V& at(const K& key) {
    for (Entry<K, V>& one : entries_) if (one.key == key) return one.value;
    entries_.push(Entry<K, V>{key, V()});
    return entries_[entries_.size() - 1].value;
  }
  List<Entry<K, V>>& entries() { return entries_; }
 private:
  List<Entry<K, V>> entries_;
};
struct Up { template <class T> bool operator()(const T& a, const T& b) const { return a < b; } };
struct Down { template <class T> bool operator()(const T& a, const T& b) const { return b < a; } };
