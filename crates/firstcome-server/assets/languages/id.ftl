join-title = Anda akan masuk antrean
join-lead = Pengunjung masuk sesuai urutan kedatangan.
join-button = Masuk antrean
scheduled-title = Belum dibuka
scheduled-lead = Tempat Anda disimpan. Pengunjung masuk sesuai urutan sejak dibuka.
draw-title = Undian belum dilakukan
draw-lead = Saat pembukaan, undian memberi tempat acak kepada setiap pengunjung yang sudah bergabung. Yang bergabung kemudian berada di belakang.
drawn-lead = Undian telah memberi tempat acak kepada setiap pengunjung yang bergabung sebelum pembukaan. Pengunjung masuk menurut urutan ini.
late-lead = Undian sudah selesai. Yang bergabung sekarang berada di belakang, menurut urutan kedatangan.
waiting-title = Anda sedang mengantre
waiting-lead = Pengunjung masuk sesuai urutan kedatangan.
almost-title = Sebentar lagi
almost-lead = Anda berikutnya. Biarkan halaman ini terbuka.
paused-title = Antrean dijeda
paused-lead = Penyelenggara menghentikan masuk untuk sementara. Tempat Anda tetap ada.
admitted-title = Giliran Anda
admitted-lead = Masuklah sebelum waktunya habis.
admitted-button = Masuk
full-title = Antrean penuh
full-lead = Silakan coba lagi sebentar lagi.
expired-title = Tempat Anda telah berakhir
expired-lead = Halaman ini terlalu lama tanpa kontak, atau kunjungan Anda sudah selesai.
left-title = Anda telah keluar dari antrean
left-lead = Tempat Anda diberikan kepada orang berikutnya.
over-title = Antrean ini ditutup
over-lead = Penyelenggara telah menutupnya. Tidak ada lagi yang masuk.
lost-title = Tidak ada koneksi
lost-lead = Koneksi terputus. Tempat Anda tetap ada; halaman ini mencoba lagi sendiri.
offer-title = Ambil tempat Anda di perangkat ini
offer-lead = Tautan ini memindahkan satu tempat di antrean ke perangkat ini, hanya sekali. Di perangkat yang memegangnya sekarang, tempat itu berakhir.
offer-button = Ambil tempat
moved-title = Tempat Anda telah pindah
moved-lead = Perangkat lain telah mengambilnya dengan tautan itu dan melanjutkannya. Halaman ini dan tautannya tidak lagi menuju ke sana.
cookies-title = Izinkan cookie
cookies-lead = Tempat Anda disimpan dalam cookie, dan peramban Anda tidak menyimpannya. Izinkan cookie untuk situs ini, lalu masuk antrean lagi.
rejoin-button = Antre lagi
work-busy = Peramban Anda menyelesaikan tugas kecil yang menahan bot.
work-wait = Sebuah tugas kecil menahan bot. Tanpa JavaScript, tunggu { $count } dtk lalu tekan tombolnya.
ahead = { $count ->
    [0] Tidak ada orang di depan Anda
   *[other] { $count } orang di depan Anda
}
entrants = { $count ->
   *[other] { $count } orang ikut undian
}
draw-link = Periksa undian
receipt-link = Simpan tanda terima
wait-label = Perkiraan waktu tunggu
wait-soon = kurang dari satu menit
wait-minutes = { $to ->
    [1] sekitar { $to } menit
   *[other] { $from }–{ $to } menit
}
wait-hours = { $to ->
    [1] sekitar { $to } jam
   *[other] { $from }–{ $to } jam
}
wait-unknown = belum diketahui
number-label = Nomor Anda
progress-label = Kemajuan sejak Anda masuk
opens-label = Dibuka dalam
ends-label = Sisa waktu
updated-label = Pembaruan terakhir
kept = Tempat Anda tetap ada jika halaman ini dimuat ulang atau ditutup.
check-button = Periksa sekarang
auto-button = Perbarui otomatis
leave-button = Keluar dari antrean
move-title = Lanjutkan di perangkat lain
move-lead = Buka tautan ini di perangkat lain dan ambil tempat di sana. Tautan berlaku sekali: jangan tunjukkan kepada siapa pun.
soldout-title = Habis
soldout-lead = Semuanya sudah diambil.
early-title = Belum dibuka
early-lead = Anda dapat mengambilnya sejak pembukaan. Halaman ini terbuka sendiri.
claim-title = Silakan ambil
claim-lead = Ambil bagian Anda sekarang. Satu untuk setiap orang.
claim-button = Ambil sekarang
claimed-title = Ini milik Anda
claimed-lead = Catat kode ini. Halaman ini menampilkannya lagi di peramban ini.
ended-title = Sudah berakhir
ended-lead = Tidak ada lagi yang dapat diambil di sini.
serial-label = Nomor seri Anda
code-label = Kode Anda
remaining = { $count ->
    [0] tidak ada lagi
   *[other] tersisa { $count }
}
language-label = Bahasa
