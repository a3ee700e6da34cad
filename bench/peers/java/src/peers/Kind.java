package peers;

/** Which of its locks. */
enum Kind {
    PLAIN("redisson", "RLock"), FAIR("redisson-fair", "RFairLock"), FENCED("redisson-fenced", "RFencedLock"),
    SPIN("redisson-spin", "RSpinLock");

    final String name;
    final String type;

    Kind(String name, String type) {
        this.name = name;
        this.type = type;
    }

    static Kind of(String name) {
        for (Kind kind : values()) {
            if (kind.name.equals(name)) {
                return kind;
            }
        }
        return null;
    }
}
